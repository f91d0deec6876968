package compat;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/**
 * The Java client 4.3.1 against a broker: one program, because each start of a JVM costs a second.
 *
 * Checks BOOTSTRAP PREFIX   prints a line for each check: "PASS name" or "FAIL name: why".
 * test_java_client.py knows the names and makes a test of each.
 */
public final class Checks {
    static final int WAIT_S = 30;
    static String bootstrap, prefix;
    static Admin admin;
    static int topics = 0;

    interface Check { void run() throws Exception; }

    interface Condition { boolean holds() throws Exception; }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        prefix = arguments[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Records.runAll();
        Groups.runAll();
        Administration.runAll();
        admin.close(Duration.ofSeconds(5));
        System.out.println("DONE");
        System.exit(0); // whatever threads a failed check left
    }

    static void check(String name, Check check) {
        long start = System.nanoTime();
        String result;
        try {
            check.run();
            result = "PASS " + name;
        } catch (Throwable problem) {
            StringBuilder where = new StringBuilder();
            for (StackTraceElement element : problem.getStackTrace())
                if (element.getClassName().startsWith("compat."))
                    where.append(' ').append(element.getFileName()).append(':').append(element.getLineNumber());
            result = "FAIL " + name + ": " + (problem + " at" + where).replace('\n', ' ');
        }
        System.out.println(result + " # " + (System.nanoTime() - start) / 1_000_000 + " ms");
    }

    static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) throw new AssertionError("expected " + expected + ", found " + found);
    }

    static void is(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    static void until(Condition condition, String what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!condition.holds()) {
            if (System.nanoTime() > end) throw new AssertionError("waited in vain: " + what);
            Thread.sleep(5);
        }
    }

    static <T> T get(Future<T> future) throws Exception {
        try {
            return future.get(WAIT_S, TimeUnit.SECONDS);
        } catch (ExecutionException wrapped) {
            throw wrapped.getCause() instanceof Exception cause ? cause : wrapped;
        }
    }

    static <E extends Throwable> E fails(Class<E> kind, Check check) {
        try {
            check.run();
        } catch (Throwable problem) {
            if (kind.isInstance(problem)) return kind.cast(problem);
            throw new AssertionError("expected " + kind.getSimpleName() + ", found " + problem);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", found success");
    }

    static String name(String kind) {
        return prefix + "-" + kind + "-" + topics++;
    }

    static String topic(int partitions, Map<String, String> configs) throws Exception {
        String topic = name("topic");
        get(admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all());
        // Apache Kafka's brokers learn of a topic a little after its creation.
        until(() -> {
            try {
                return described(topic).partitions().size() == partitions;
            } catch (UnknownTopicOrPartitionException early) {
                return false;
            }
        }, "the new topic");
        return topic;
    }

    static TopicDescription described(String topic) throws Exception {
        return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
    }

    static boolean listed(String topic) throws Exception {
        return get(admin.listTopics().names()).contains(topic);
    }

    static ConsumerGroupDescription describedGroup(String group) throws Exception {
        return get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 10));
        for (int at = 0; at < settings.length; at += 2) config.put((String) settings[at], settings[at + 1]);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Object... settings) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "auto.offset.reset", "earliest", "enable.auto.commit", false,
            "heartbeat.interval.ms", 300, "fetch.max.wait.ms", 100));
        for (int at = 0; at < settings.length; at += 2) config.put((String) settings[at], settings[at + 1]);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> take(
            KafkaConsumer<byte[], byte[]> consumer, int count) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        until(() -> {
            consumer.poll(Duration.ofMillis(100)).forEach(found::add);
            return found.size() >= count;
        }, count + " records");
        equal(count, found.size());
        return found;
    }

    /** Everything about a record that its sender chose, in one comparable value. */
    static String shape(byte[] key, byte[] value, Iterable<Header> headers, long timestamp) {
        StringBuilder text = new StringBuilder();
        text.append(Arrays.toString(key)).append(' ').append(Arrays.hashCode(value)).append(' ');
        text.append(value == null ? "" : value.length).append(' ').append(timestamp);
        for (Header header : headers) text.append(header.key()).append(Arrays.toString(header.value()));
        return text.toString();
    }

    static List<ProducerRecord<byte[], byte[]>> assorted(String topic, int partition, int count, long startMs) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            byte[] key = switch (number % 5) {
                case 0 -> null;
                case 1 -> new byte[0];
                default -> bytes("key-" + number);
            };
            byte[] value = switch (number % 7) {
                case 2 -> null;
                case 3 -> new byte[0];
                case 4 -> new byte[10_000];
                default -> bytes("value-" + number + " \u2603".repeat(number));
            };
            List<Header> headers = number % 4 != 3 ? List.of() : List.of(
                new RecordHeader("h", bytes("1")),
                new RecordHeader("h", null),
                new RecordHeader("\u00fc", new byte[300]));
            records.add(new ProducerRecord<>(topic, partition, startMs + 10L * number, key, value, headers));
        }
        return records;
    }

    static List<RecordMetadata> send(
            KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) futures.add(producer.send(record));
        List<RecordMetadata> found = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) found.add(get(future));
        return found;
    }

    static List<String> sent(List<ProducerRecord<byte[], byte[]>> records) {
        return records.stream().map(r -> shape(r.key(), r.value(), r.headers(), r.timestamp())).toList();
    }

    static List<String> read(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(r -> shape(r.key(), r.value(), r.headers(), r.timestamp())).toList();
    }

    static long anHourAgo() {
        return System.currentTimeMillis() - 3_600_000;
    }

    static void create(NewTopic... wanted) throws Exception {
        get(admin.createTopics(List.of(wanted)).all());
    }
}
