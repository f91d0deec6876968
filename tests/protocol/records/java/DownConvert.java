import java.io.*;
import java.nio.ByteBuffer;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.Time;

/**
 * Apache Kafka's own conversion of record batches down to message sets, case by case from standard input to standard
 * output: a case is magic (int8), first offset (int64), size (int32) and batches; its answer is size (int32) and the set.
 */
public final class DownConvert {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int magic = in.read(); magic >= 0; magic = in.read()) {
            long firstOffset = in.readLong();
            byte[] batches = new byte[in.readInt()];
            in.readFully(batches);
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(batches));
            ByteBuffer set = ((MemoryRecords) records.downConvert((byte) magic, firstOffset, Time.SYSTEM).records()).buffer();
            byte[] bytes = new byte[set.remaining()];
            set.get(bytes);
            out.writeInt(bytes.length);
            out.write(bytes);
        }
        out.flush();
    }
}
