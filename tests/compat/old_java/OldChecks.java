package compat;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;

/**
 * Java clients from 0.10.0 to 3.9 against a broker: compiled once, against 0.10.2, and run with the jars of each.
 *
 * OldChecks VERSION BOOTSTRAP PREFIX MODERN ZSTD PARTITIONS   prints a line for each check: "PASS name" or "FAIL name:
 * why". Topics that are there: MODERN with what a client of today wrote, ZSTD with one record so compressed, PARTITIONS
 * with four partitions. test_old_java.py knows the names of the checks.
 */
public final class OldChecks {
    static final int WAIT_S = 30;
    static final int COUNT = 300;
    static String version, bootstrap, prefix;

    interface Check { void run() throws Exception; }

    public static void main(String[] arguments) throws Exception {
        version = arguments[0];
        bootstrap = arguments[1];
        prefix = arguments[2];
        String modern = arguments[3], zstd = arguments[4], partitions = arguments[5];
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4"))
            check("records[" + codec + "]", () -> records(codec));
        for (String acks : Arrays.asList("0", "1", "all")) check("acks[" + acks + "]", () -> acks(acks));
        check("small-fetches", OldChecks::smallFetches);
        check("places", OldChecks::places);
        check("too-large", OldChecks::tooLarge);
        check("modern", () -> modern(modern));
        check("zstd", () -> zstd(zstd));
        check("group", () -> group(partitions));
        System.out.println("DONE");
        System.exit(0); // whatever threads a failed check left
    }

    static void check(String name, Check check) {
        String result;
        try {
            check.run();
            result = "PASS " + name;
        } catch (Throwable problem) {
            StringBuilder where = new StringBuilder();
            for (StackTraceElement element : problem.getStackTrace())
                if (element.getClassName().startsWith("compat.")) where.append(" :").append(element.getLineNumber());
            result = "FAIL " + name + ": " + (problem + " at" + where).replace('\n', ' ');
        }
        System.out.println(result);
    }

    static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) throw new AssertionError("expected " + expected + ", found " + found);
    }

    static boolean before(String release) {
        return version.compareTo(release) < 0; // as text: all releases here have one digit in their first numbers
    }

    static KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("linger.ms", 20);
        for (int at = 0; at < settings.length; at += 2) config.put((String) settings[at], settings[at + 1]);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Object... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("heartbeat.interval.ms", 300);
        config.put("fetch.max.wait.ms", 100);
        for (int at = 0; at < settings.length; at += 2) config.put((String) settings[at], settings[at + 1]);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Keys, values and times of every shape; written so that a set of them can be compared. */
    static List<ProducerRecord<byte[], byte[]>> assorted(String topic, int count) {
        long start = System.currentTimeMillis() - 3_600_000;
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            byte[] key = number % 3 == 0 ? null : ("key-" + number).getBytes();
            byte[] value = new byte[number % 13 == 0 ? 5000 : number % 11 == 2 ? 0 : number];
            Arrays.fill(value, (byte) number);
            if (number % 7 == 1) value = null;
            records.add(new ProducerRecord<>(topic, 0, start + number, key, value));
        }
        return records;
    }

    static String text(long time, byte[] key, byte[] value) {
        String content = value == null ? "null" : value.length + ":" + Arrays.hashCode(value);
        return time + " " + Arrays.toString(key) + " " + content;
    }

    static List<String> sent(List<ProducerRecord<byte[], byte[]>> records) {
        List<String> texts = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> one : records) texts.add(text(one.timestamp(), one.key(), one.value()));
        return texts;
    }

    static List<String> read(List<ConsumerRecord<byte[], byte[]>> records) {
        List<String> texts = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> one : records) texts.add(text(one.timestamp(), one.key(), one.value()));
        return texts;
    }

    static List<RecordMetadata> send(
            KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) futures.add(producer.send(record));
        List<RecordMetadata> told = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) told.add(future.get(WAIT_S, TimeUnit.SECONDS));
        return told;
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (found.size() < count) {
            if (System.nanoTime() > end) throw new AssertionError(found.size() + " of " + count + " records came");
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(100)) found.add(record);
        }
        return found;
    }

    static List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int count, Object... settings) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(Collections.singletonList(new TopicPartition(topic, 0)));
            consumer.seek(new TopicPartition(topic, 0), 0);
            return take(consumer, count);
        }
    }

    static void records(String codec) throws Exception {
        String topic = prefix + "-records-" + codec; // which the first look at it creates
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, COUNT);
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec, "acks", "all")) {
            long offset = 0;
            for (RecordMetadata told : send(producer, records)) equal(offset++, told.offset());
        }
        List<ConsumerRecord<byte[], byte[]>> found = readAll(topic, COUNT);
        equal(sent(records), read(found));
        for (int at = 0; at < COUNT; at++) {
            equal((long) at, found.get(at).offset());
            equal(TimestampType.CREATE_TIME, found.get(at).timestampType());
        }
    }

    static void acks(String acks) throws Exception {
        String topic = prefix + "-acks-" + acks;
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, 20);
        try (KafkaProducer<byte[], byte[]> producer = producer("acks", acks)) {
            send(producer, records);
        }
        equal(sent(records), read(readAll(topic, 20)));
    }

    static void smallFetches() throws Exception {
        equal(COUNT, readAll(prefix + "-records-none", COUNT, "max.partition.fetch.bytes", 6000).size());
        equal(COUNT, readAll(prefix + "-records-gzip", COUNT, "max.partition.fetch.bytes", 200_000).size());
    }

    static void places() throws Exception {
        TopicPartition place = new TopicPartition(prefix + "-records-snappy", 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(Collections.singletonList(place));
            consumer.seek(place, 150);
            equal(150L, take(consumer, 1).get(0).offset());
            consumer.seekToEnd(Collections.singletonList(place));
            equal((long) COUNT, consumer.position(place));
            consumer.seekToBeginning(Collections.singletonList(place));
            equal(0L, consumer.position(place));
            ConsumerRecord<byte[], byte[]> middle = readAll(place.topic(), COUNT).get(100);
            if (before("0.10.1")) return; // no question about times in this client
            equal(100L, consumer.offsetsForTimes(Collections.singletonMap(place, middle.timestamp())).get(place).offset());
            equal((long) COUNT, consumer.endOffsets(Collections.singletonList(place)).get(place));
            consumer.seek(place, 10_000);
            equal(0L, take(consumer, 1).get(0).offset()); // out of range: auto.offset.reset
        }
    }

    static void tooLarge() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", 5_000_000)) {
            send(producer, Collections.singletonList(new ProducerRecord<>(prefix + "-large", 0, null, new byte[2_000_000])));
            throw new AssertionError("a record of 2 MB was taken");
        } catch (ExecutionException refusal) {
            equal(RecordTooLargeException.class, refusal.getCause().getClass());
        }
    }

    static void modern(String topic) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> found = readAll(topic, 40);
        for (int at = 0; at < 40; at++) {
            equal((long) at, found.get(at).offset());
            equal("value-" + at, new String(found.get(at).value()).trim()); // filled up, to be worth a codec
            equal(at % 2 == 0 ? null : "key-" + at, found.get(at).key() == null ? null : new String(found.get(at).key()));
            equal(1_700_000_000_000L + at, found.get(at).timestamp());
        }
    }

    /** What came with 2.1 is not given to older clients as something else: they get an error, or nothing. */
    static void zstd(String topic) throws Exception {
        if (!before("2.1")) {
            equal("packed", new String(readAll(topic, 1).get(0).value()).trim());
            return;
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(Collections.singletonList(new TopicPartition(topic, 0)));
            for (int polls = 0; polls < 10; polls++) equal(0, consumer.poll(100).count());
        } catch (IllegalStateException | IllegalArgumentException | KafkaException refusal) {
            return;
        }
    }

    static void group(String topic) throws Exception {
        String group = prefix + "-group";
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int at = 0; at < 40; at++) records.add(new ProducerRecord<>(topic, at % 4, null, ("v" + at).getBytes()));
            send(producer, records);
        }
        KafkaConsumer<byte[], byte[]> one = consumer("group.id", group), two = consumer("group.id", group);
        one.subscribe(Collections.singletonList(topic));
        settle(4, one);
        two.subscribe(Collections.singletonList(topic));
        settle(2, one, two);
        Set<TopicPartition> both = new HashSet<>(one.assignment());
        both.addAll(two.assignment());
        equal(4, both.size());
        two.close();
        settle(4, one);
        for (TopicPartition place : one.assignment()) one.seek(place, 7);
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (TopicPartition place : one.assignment()) positions.put(place, new OffsetAndMetadata(7, "seven"));
        one.commitSync(positions);
        one.close();
        try (KafkaConsumer<byte[], byte[]> next = consumer("group.id", group)) {
            OffsetAndMetadata committed = next.committed(new TopicPartition(topic, 3));
            equal(7L, committed.offset());
            equal("seven", committed.metadata());
            next.subscribe(Collections.singletonList(topic));
            equal(12, take(next, 12).size());
            next.commitSync();
        }
    }

    /** Poll until each consumer owns so many partitions; all at once, as one's poll may wait for the others' joins. */
    @SafeVarargs
    static void settle(int count, KafkaConsumer<byte[], byte[]>... members) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        AtomicIntegerArray owned = new AtomicIntegerArray(members.length);
        AtomicBoolean settled = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < members.length; at++) {
            int index = at;
            threads.add(new Thread(() -> {
                while (!settled.get() && System.nanoTime() < end) {
                    members[index].poll(50);
                    owned.set(index, members[index].assignment().size());
                    boolean all = true;
                    for (int other = 0; other < members.length; other++) all &= owned.get(other) == count;
                    if (all) settled.set(true);
                }
            }));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        if (!settled.get()) throw new AssertionError("no assignment of " + count + " each: " + owned);
    }
}
