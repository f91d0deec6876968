import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * What Apache Kafka's cleaner makes of a batch. A line in, a line out: `now retention retain-empty marker-of-nothing
 * superseded-offsets batch` (offsets joined by commas, or `-`; the batch as hex) becomes the batch as hex, or `-`.
 */
public class FilterBatches {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            boolean retainEmpty = words[2].equals("1");
            boolean markerOfNothing = words[3].equals("1");
            Set<Long> superseded = words[4].equals("-") ? Set.of()
                : Arrays.stream(words[4].split(",")).map(Long::valueOf).collect(Collectors.toSet());
            byte[] batch = HexFormat.of().parseHex(words[5]);
            RecordFilter filter = new RecordFilter(Long.parseLong(words[0]), Long.parseLong(words[1])) {
                @Override
                protected BatchRetentionResult checkBatchRetention(RecordBatch one) {
                    return new BatchRetentionResult(
                        retainEmpty ? BatchRetention.RETAIN_EMPTY : BatchRetention.DELETE_EMPTY, markerOfNothing);
                }

                @Override
                protected boolean shouldRetainRecord(RecordBatch one, Record record) {
                    boolean tombstonesStay = one.deleteHorizonMs().isEmpty()
                        || currentTime < one.deleteHorizonMs().getAsLong();
                    return one.isControlBatch()
                        || !superseded.contains(record.offset()) && (record.hasValue() || tombstonesStay);
                }
            };
            ByteBuffer target = ByteBuffer.allocate(1 << 20);
            ByteBuffer output = MemoryRecords.readableRecords(ByteBuffer.wrap(batch))
                .filterTo(filter, target, BufferSupplier.NO_CACHING).outputBuffer();
            output.flip();
            byte[] left = new byte[output.remaining()];
            output.get(left);
            System.out.println(left.length == 0 ? "-" : HexFormat.of().formatHex(left));
        }
    }
}
