import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's own log under transactions. A line in, a line out:
 *
 *   open <folder> <clean> <segment bytes>                      state
 *   append <batch as hex> <producer>                           first offset, or the name of the error
 *   verify <producer> <epoch> <sequence> <new protocol>        open or guard, or the name of the error
 *   mark <producer> <epoch> <coordinator epoch> <commit> <transaction version> <now>     the same
 *   hw <offset> | roll | truncate <offset> | start <offset>    state
 *   close                                                      closed
 */
public class TransactionLogs {
    private static final Map<String, VerificationGuard> GUARDS = new HashMap<>();
    private static UnifiedLog log;

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = run(words, scheduler);
            } catch (Exception error) {
                Errors code = Errors.forException(error);
                answer = code == Errors.UNKNOWN_SERVER_ERROR ? error.toString() : code.name();
            }
            System.out.println(answer);
        }
        scheduler.shutdown();
        System.exit(0);
    }

    private static String run(String[] words, KafkaScheduler scheduler) throws Exception {
        switch (words[0]) {
            case "open":
                LogConfig config = new LogConfig(Map.of(
                    "internal.segment.bytes", words[3], "index.interval.bytes", "100", "retention.ms", "-1"));
                log = UnifiedLog.create(new File(words[1]), config, 0, 0, scheduler, new BrokerTopicStats(), Time.SYSTEM,
                    60_000, new ProducerStateManagerConfig(86_400_000, true), 600_000, new LogDirFailureChannel(1),
                    words[2].equals("1"), Optional.empty());
                GUARDS.clear();
                return state();
            case "append":
                MemoryRecords batch = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(words[1])));
                return offset(log.appendAsLeader(batch, 0, AppendOrigin.CLIENT, RequestLocal.noCaching(),
                    GUARDS.getOrDefault(words[2], VerificationGuard.SENTINEL), TransactionVersion.TV_UNKNOWN));
            case "verify":
                VerificationGuard guard = log.maybeStartTransactionVerification(Long.parseLong(words[1]),
                    Integer.parseInt(words[3]), Short.parseShort(words[2]), words[4].equals("1"));
                GUARDS.put(words[1], guard);
                return guard == VerificationGuard.SENTINEL ? "open" : "guard";
            case "mark":
                EndTransactionMarker marker = new EndTransactionMarker(
                    words[4].equals("1") ? ControlRecordType.COMMIT : ControlRecordType.ABORT,
                    Integer.parseInt(words[3]));
                MemoryRecords control = MemoryRecords.withEndTransactionMarker(
                    Long.parseLong(words[6]), Long.parseLong(words[1]), Short.parseShort(words[2]), marker);
                return offset(log.appendAsLeader(control, 0, AppendOrigin.COORDINATOR, RequestLocal.noCaching(),
                    VerificationGuard.SENTINEL, Short.parseShort(words[5])));
            case "hw":
                log.updateHighWatermark(Long.parseLong(words[1]));
                return state();
            case "roll":
                log.roll();
                return state();
            case "truncate":
                log.truncateTo(Long.parseLong(words[1]));
                return state();
            default:
                log.close();
                return "closed";
        }
    }

    private static String offset(LogAppendInfo info) {
        return Long.toString(info.firstOffset());
    }

    private static String state() {
        return log.logEndOffset() + " " + log.lastStableOffset() + " "
            + log.collectAbortedTransactions(0, Long.MAX_VALUE).stream()
                .map(one -> one.producerId() + ":" + one.firstOffset() + ":" + one.lastOffset() + ":"
                    + one.lastStableOffset())
                .collect(Collectors.joining(",", "[", "]"))
            + " " + log.activeProducers().stream()
                .sorted(Comparator.comparingLong(one -> one.producerId()))
                .map(one -> one.producerId() + ":" + one.producerEpoch() + ":" + one.lastSequence() + ":"
                    + one.coordinatorEpoch() + ":" + one.currentTxnStartOffset())
                .collect(Collectors.joining(",", "[", "]"));
    }
}
