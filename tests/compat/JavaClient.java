/* The Java client 4.3.1 against a broker: one program, because each start of a JVM costs a second.
 *
 * java -cp 'jars/*' JavaClient.java BOOTSTRAP PREFIX   prints a line for each check: "PASS name" or "FAIL name: why".
 * test_java_client.py knows the names and makes a test of each. */

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;

public class JavaClient {
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
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            check("records[" + codec + "]", () -> records(codec));
        for (String acks : List.of("0", "1", "all")) check("acks[" + acks + "]", () -> acks(acks));
        check("idempotence", JavaClient::idempotence);
        check("murmur2", JavaClient::murmur2);
        check("places", JavaClient::places);
        check("small-fetches", JavaClient::smallFetches);
        check("auto-creation", JavaClient::autoCreation);
        check("too-large", JavaClient::tooLarge);
        check("unknown-topic", JavaClient::unknownTopic);
        check("transactions-refused", JavaClient::transactionsRefused);
        check("group[eager]", () -> group("org.apache.kafka.clients.consumer.RangeAssignor", false));
        check("group[cooperative]", () -> group("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", true));
        check("commit", JavaClient::commit);
        check("static-member", JavaClient::staticMember);
        check("enforced-rebalance", JavaClient::enforcedRebalance);
        check("pattern", JavaClient::pattern);
        check("topics", JavaClient::topics);
        check("bad-topics", JavaClient::badTopics);
        check("configs", JavaClient::configs);
        check("broker-configs", JavaClient::brokerConfigs);
        check("groups-admin", JavaClient::groupsAdmin);
        check("list-offsets", JavaClient::listOffsets);
        check("cluster", JavaClient::cluster);
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
                if (element.getFileName() != null && element.getFileName().startsWith("JavaClient"))
                    where.append(" line ").append(element.getLineNumber());
            result = "FAIL " + name + ": " + (problem + " at" + where).replace('\n', ' ');
        }
        System.out.println(result + " # " + (System.nanoTime() - start) / 1_000_000 + " ms");
    }

    // ---- helpers ----

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

    // ---- producing and consuming ----

    static void records(String codec) throws Exception {
        String topic = topic(1, Map.of());
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, 0, 60, anHourAgo());
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec)) {
            List<RecordMetadata> told = send(producer, records);
            equal(LongStream.range(0, 60).boxed().toList(), told.stream().map(RecordMetadata::offset).toList());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            List<ConsumerRecord<byte[], byte[]>> found = take(consumer, 60);
            equal(sent(records), read(found));
            equal(LongStream.range(0, 60).boxed().toList(), found.stream().map(ConsumerRecord::offset).toList());
            is(found.stream().allMatch(r -> r.timestampType() == TimestampType.CREATE_TIME), "timestamp types");
        }
    }

    static void acks(String acks) throws Exception {
        String topic = topic(1, Map.of());
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, 0, 20, anHourAgo());
        try (KafkaProducer<byte[], byte[]> producer = producer("acks", acks, "enable.idempotence", false)) {
            for (RecordMetadata told : send(producer, records)) equal(!acks.equals("0"), told.hasOffset());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            equal(sent(records), read(take(consumer, 20)));
        }
    }

    static void idempotence() throws Exception {
        String topic = topic(3, Map.of());
        Object[] settings = {"linger.ms", 0, "batch.size", 100, "enable.idempotence", true};
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int number = 0; number < 3000; number++)
                records.add(new ProducerRecord<>(topic, number % 3, null, bytes("" + number)));
            send(producer, records);
        }
        for (int partition = 0; partition < 3; partition++) {
            int first = partition;
            try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
                consumer.assign(List.of(new TopicPartition(topic, partition)));
                equal(IntStream.range(0, 1000).mapToObj(at -> "" + (at * 3 + first)).toList(),
                    take(consumer, 1000).stream().map(r -> new String(r.value())).toList());
            }
        }
    }

    static void murmur2() throws Exception {
        String topic = topic(7, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (String key : List.of("a", "b", "user-1", "user-2")) {
                int expected = (org.apache.kafka.common.utils.Utils.murmur2(bytes(key)) & 0x7fffffff) % 7;
                equal(expected, get(producer.send(new ProducerRecord<>(topic, bytes(key), bytes("v")))).partition());
            }
            equal(7, producer.partitionsFor(topic).size());
        }
    }

    static void places() throws Exception {
        String topic = topic(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = anHourAgo();
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, 0, 30, start);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            send(producer, records);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 17);
            equal(sent(records.subList(17, 30)), read(take(consumer, 13)));
            consumer.seekToEnd(List.of(partition));
            equal(30L, consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            equal(0L, consumer.position(partition));
            equal(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
            equal(Map.of(partition, 30L), consumer.endOffsets(List.of(partition)));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, start + 121)).get(partition);
            equal(13L, found.offset());
            equal(start + 130, found.timestamp());
            equal(null, consumer.offsetsForTimes(Map.of(partition, start + 100_000)).get(partition));
            consumer.seek(partition, 1000);
            fails(org.apache.kafka.clients.consumer.OffsetOutOfRangeException.class, () -> take(consumer, 1));
        }
    }

    static void smallFetches() throws Exception {
        String topic = topic(2, Map.of());
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int number = 0; number < 100; number++)
            records.add(new ProducerRecord<>(topic, number % 2, null, bytes(number + "x".repeat(200))));
        try (KafkaProducer<byte[], byte[]> producer = producer("batch.size", 0)) {
            send(producer, records);
        }
        Object[] limits = {"max.partition.fetch.bytes", 300, "fetch.max.bytes", 500, "max.poll.records", 3};
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(limits)) {
            consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            equal(records.stream().map(r -> new String(r.value())).sorted().toList(),
                take(consumer, 100).stream().map(r -> new String(r.value())).sorted().toList());
        }
    }

    static void autoCreation() throws Exception {
        String topic = name("auto");
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            equal(0L, get(producer.send(new ProducerRecord<>(topic, bytes("v")))).offset());
        }
        equal(1, described(topic).partitions().size());
    }

    static void tooLarge() throws Exception {
        String topic = topic(1, Map.of("max.message.bytes", "10000"));
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            equal(0L, get(producer.send(new ProducerRecord<>(topic, 0, null, new byte[9000]))).offset());
            fails(RecordTooLargeException.class,
                () -> get(producer.send(new ProducerRecord<>(topic, 0, null, new byte[20_000]))));
            equal(1L, get(producer.send(new ProducerRecord<>(topic, 0, null, new byte[9000]))).offset());
        }
    }

    static void unknownTopic() throws Exception {
        String topic = name("missing");
        TopicCollection unknownId = TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()));
        fails(UnknownTopicOrPartitionException.class, () -> described(topic));
        fails(UnknownTopicIdException.class, () -> get(admin.describeTopics(unknownId).allTopicIds()));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("allow.auto.create.topics", false)) {
            equal(List.of(), consumer.partitionsFor(topic));
        }
        is(!listed(topic), "looking made the topic");
    }

    static void transactionsRefused() throws Exception {
        Object[] settings = {"transactional.id", name("txn"), "max.block.ms", 20_000};
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            long start = System.nanoTime();
            KafkaException problem = fails(KafkaException.class, producer::initTransactions);
            is(problem instanceof TransactionalIdAuthorizationException, "refused with " + problem);
            is(!(problem instanceof RetriableException), "retriable");
            is(System.nanoTime() - start < 10_000_000_000L, "it took too long");
        }
    }

    // ---- groups ----

    /** A member that polls on its own thread. */
    static class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<byte[], byte[]> consumer;
        final Set<Integer> owned = ConcurrentHashMap.newKeySet();
        final List<Set<Integer>> revocations = new CopyOnWriteArrayList<>();
        final List<ConsumerRecord<byte[], byte[]>> read = new CopyOnWriteArrayList<>();
        final BlockingQueue<Runnable> wishes = new LinkedBlockingQueue<>();
        volatile boolean ends;
        volatile Throwable problem;
        final Thread thread;

        Member(String group, String topic, Object... settings) {
            List<Object> all = new ArrayList<>(List.of("group.id", group));
            all.addAll(List.of(settings));
            consumer = consumer(all.toArray());
            consumer.subscribe(List.of(topic), this);
            thread = new Thread(() -> {
                try {
                    while (!ends) {
                        consumer.poll(Duration.ofMillis(50)).forEach(read::add);
                        for (Runnable wish; (wish = wishes.poll()) != null; ) wish.run();
                    }
                } catch (WakeupException closing) {
                    if (!ends) problem = closing;
                } catch (Throwable found) {
                    problem = found;
                } finally {
                    consumer.close(CloseOptions.timeout(Duration.ofSeconds(10)));
                }
            });
            thread.start();
        }

        static Set<Integer> numbers(Collection<TopicPartition> partitions) {
            return partitions.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) { owned.addAll(numbers(partitions)); }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owned.removeAll(numbers(partitions));
            if (!partitions.isEmpty() && !ends) revocations.add(numbers(partitions));
        }

        /** Runs something with the consumer on its thread. */
        void ask(Runnable wish) throws Exception {
            CompletableFuture<Void> done = new CompletableFuture<>();
            wishes.add(() -> {
                try {
                    wish.run();
                    done.complete(null);
                } catch (Throwable found) {
                    done.completeExceptionally(found);
                }
            });
            get(done);
        }

        public void close() throws Exception {
            ends = true;
            consumer.wakeup();
            thread.join(15_000);
        }
    }

    static void settled(List<Member> members, Integer... counts) throws Exception {
        until(() -> {
            for (Member member : members) if (member.problem != null) throw new AssertionError(member.problem);
            Set<Integer> all = new HashSet<>();
            members.forEach(member -> all.addAll(member.owned));
            return members.stream().map(member -> member.owned.size()).toList().equals(List.of(counts))
                && all.size() == Stream.of(counts).mapToInt(count -> count).sum();
        }, "a division into " + List.of(counts));
    }

    static void group(String assignor, boolean cooperative) throws Exception {
        String topic = topic(4, Map.of()), group = name("group");
        Object[] settings = {"partition.assignment.strategy", assignor};
        try (Member first = new Member(group, topic, settings)) {
            settled(List.of(first), 4);
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            Member second = new Member(group, topic, settings);
            try (second) {
                settled(List.of(first, second), 2, 2);
                Set<Integer> moved = new TreeSet<>(cooperative ? second.owned : Set.of(0, 1, 2, 3));
                equal(List.of(moved), first.revocations);
                for (int partition = 0; partition < 4; partition++)
                    records.addAll(assorted(topic, partition, 10, anHourAgo()));
                try (KafkaProducer<byte[], byte[]> producer = producer()) {
                    send(producer, records);
                }
                until(() -> first.read.size() + second.read.size() >= 40, "all records");
                List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>(first.read);
                read.addAll(second.read);
                for (Member member : List.of(first, second))
                    for (ConsumerRecord<byte[], byte[]> record : member.read)
                        is(member.owned.contains(record.partition()), "a record at the wrong member");
                read.sort(Comparator.comparingLong(r -> r.partition() * 1000 + r.offset()));
                equal(sent(records), read(read));
            }
            // Well within the session timeout of 45 s: it has left, it did not expire.
            settled(List.of(first), 4);
            equal(null, first.problem);
            equal(null, second.problem);
        }
    }

    static void commit() throws Exception {
        String topic = topic(1, Map.of()), group = name("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, 0, 10, anHourAgo());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            send(producer, records);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group, "max.poll.records", 4)) {
            consumer.subscribe(List.of(topic));
            take(consumer, 4);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, Optional.of(0), "so far")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group, "enable.auto.commit", true)) {
            consumer.subscribe(List.of(topic));
            equal(sent(records.subList(4, 10)), read(take(consumer, 6)));
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            equal(new OffsetAndMetadata(4, Optional.of(0), "so far"), found);
        } // commits as it closes
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group)) {
            equal(10L, consumer.committed(Set.of(partition)).get(partition).offset());
            CompletableFuture<Long> done = new CompletableFuture<>();
            consumer.assign(List.of(partition));
            consumer.commitAsync(Map.of(partition, new OffsetAndMetadata(7)), (offsets, problem) -> {
                if (problem == null) done.complete(offsets.get(partition).offset());
                else done.completeExceptionally(problem);
            });
            until(() -> {
                consumer.poll(Duration.ofMillis(20));
                return done.isDone();
            }, "the commit");
            equal(7L, get(done));
        }
    }

    static void staticMember() throws Exception {
        String topic = topic(4, Map.of()), group = name("static");
        try (Member first = new Member(group, topic, "group.instance.id", "one")) {
            settled(List.of(first), 4);
            Member second = new Member(group, topic, "group.instance.id", "two");
            settled(List.of(first, second), 2, 2);
            Set<Integer> owned = new TreeSet<>(second.owned);
            int seen = first.revocations.size();
            second.close();
            try (Member back = new Member(group, topic, "group.instance.id", "two")) {
                until(() -> back.owned.size() == 2, "its partitions");
                equal(owned, new TreeSet<>(back.owned));
                equal(seen, first.revocations.size());
                equal(List.of("one", "two"),
                    describedGroup(group).members().stream().map(m -> m.groupInstanceId().get()).sorted().toList());
            }
            // A static member stays in the group until somebody removes it.
            var removal = new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("two")));
            get(admin.removeMembersFromConsumerGroup(group, removal).all());
            settled(List.of(first), 4);
            Member doubled = new Member(group, topic, "group.instance.id", "one");
            try (doubled) {
                until(() -> first.problem instanceof FencedInstanceIdException, "the fencing of the first");
                settled(List.of(doubled), 4);
            }
        }
    }

    static void enforcedRebalance() throws Exception {
        String topic = topic(2, Map.of()), group = name("enforced");
        try (Member member = new Member(group, topic)) {
            settled(List.of(member), 2);
            int[] before = new int[1];
            member.ask(() -> before[0] = member.consumer.groupMetadata().generationId());
            member.ask(() -> member.consumer.enforceRebalance("a test"));
            int[] now = new int[1];
            until(() -> {
                member.ask(() -> now[0] = member.consumer.groupMetadata().generationId());
                return now[0] > before[0];
            }, "the next generation");
        }
    }

    static void pattern() throws Exception {
        String common = name("pattern"), group = name("group");
        create(new NewTopic(common + "-a", 1, (short) 1), new NewTopic(common + "-b", 2, (short) 1));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group, "metadata.max.age.ms", 200)) {
            consumer.subscribe(java.util.regex.Pattern.compile(common + "-.*"));
            until(() -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.assignment().size() == 3;
            }, "three partitions");
            create(new NewTopic(common + "-c", 2, (short) 1));
            until(() -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.assignment().size() == 5;
            }, "a new topic's two more");
        }
    }

    // ---- administration ----

    static void topics() throws Exception {
        String topic = name("admin");
        NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "3600000"));
        get(admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all());
        is(!listed(topic), "validation made the topic");
        CreateTopicsResult created = admin.createTopics(List.of(wanted));
        equal(2, get(created.numPartitions(topic)));
        equal(1, get(created.replicationFactor(topic)));
        equal("3600000", get(created.config(topic)).get("retention.ms").value());
        Uuid id = get(created.topicId(topic));
        until(() -> listed(topic), "the topic");
        TopicDescription described = described(topic);
        equal(id, described.topicId());
        equal(List.of(0, 1), described.partitions().stream().map(TopicPartitionInfo::partition).toList());
        int node = described.partitions().get(0).leader().id();
        equal(List.of(node), described.partitions().get(1).isr().stream().map(Node::id).toList());
        TopicCollection byId = TopicCollection.ofTopicIds(List.of(id));
        equal(topic, get(admin.describeTopics(byId).allTopicIds()).get(id).name());
        fails(TopicExistsException.class, () -> create(wanted));
        grow(topic, NewPartitions.increaseTo(5));
        until(() -> described(topic).partitions().size() == 5, "five partitions");
        fails(InvalidPartitionsException.class, () -> grow(topic, NewPartitions.increaseTo(5)));
        fails(InvalidPartitionsException.class, () -> grow(topic, NewPartitions.increaseTo(1)));
        grow(topic, NewPartitions.increaseTo(6, List.of(List.of(node))));
        get(admin.deleteTopics(byId).all());
        until(() -> !listed(topic), "its end");
        fails(UnknownTopicOrPartitionException.class, () -> get(admin.deleteTopics(List.of(topic)).all()));
        fails(UnknownTopicIdException.class, () -> get(admin.deleteTopics(byId).all()));
        // Broker defaults for count and replication.
        create(new NewTopic(topic, Optional.empty(), Optional.empty()));
    }

    static void create(NewTopic... wanted) throws Exception {
        get(admin.createTopics(List.of(wanted)).all());
    }

    static void grow(String topic, NewPartitions partitions) throws Exception {
        get(admin.createPartitions(Map.of(topic, partitions)).all());
    }

    static void badTopics() throws Exception {
        String name = name("bad");
        Map<String, String> unknownKey = Map.of("retention.mss", "1");
        fails(InvalidTopicException.class, () -> create(new NewTopic("not a name", 1, (short) 1)));
        fails(InvalidTopicException.class, () -> create(new NewTopic("..", 1, (short) 1)));
        fails(InvalidPartitionsException.class, () -> create(new NewTopic(name, 0, (short) 1)));
        fails(InvalidReplicationFactorException.class, () -> create(new NewTopic(name, 1, (short) 9)));
        fails(InvalidReplicationFactorException.class, () -> create(new NewTopic(name, 1, (short) 0)));
        fails(InvalidConfigurationException.class, () -> create(new NewTopic(name, 1, (short) 1).configs(unknownKey)));
        fails(InvalidReplicaAssignmentException.class, () -> create(new NewTopic(name, Map.of(0, List.of(77)))));
        is(!listed(name), "a refused topic exists");
        // One bad topic of a request does not keep the other from being made.
        NewTopic good = new NewTopic(name, 1, (short) 1), bad = new NewTopic("a b", 1, (short) 1);
        fails(InvalidTopicException.class, () -> create(good, bad));
        until(() -> listed(name), "the good one of two");
    }

    static AlterConfigOp op(String key, String value, OpType type) {
        return new AlterConfigOp(new ConfigEntry(key, value), type);
    }

    static void configs() throws Exception {
        String topic = topic(1, Map.of("retention.ms", "1000000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        class Now {
            Config all() throws Exception {
                var everything = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
                return get(admin.describeConfigs(List.of(resource), everything).all()).get(resource);
            }

            String value(String key) throws Exception {
                return all().get(key).value();
            }

            void alter(AlterConfigOp... ops) throws Exception {
                get(admin.incrementalAlterConfigs(Map.of(resource, List.of(ops))).all());
            }
        }
        Now now = new Now();
        equal("1000000", now.value("retention.ms"));
        ConfigEntry entry = now.all().get("retention.ms");
        equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry.source());
        equal(ConfigEntry.ConfigType.LONG, entry.type());
        is(!entry.isDefault() && !entry.isSensitive() && !entry.isReadOnly(), "flags of " + entry);
        equal("retention.ms", entry.synonyms().get(0).name());
        is(entry.documentation() != null && entry.documentation().length() > 20, "no documentation");
        is(now.all().get("cleanup.policy").isDefault(), "cleanup.policy is set");
        now.alter(op("retention.ms", "2000000", OpType.SET), op("segment.bytes", "1048576", OpType.SET));
        equal("2000000", now.value("retention.ms"));
        now.alter(op("retention.ms", null, OpType.DELETE));
        equal("604800000", now.value("retention.ms"));
        equal("1048576", now.value("segment.bytes"));
        now.alter(op("cleanup.policy", "compact", OpType.APPEND));
        equal("delete,compact", now.value("cleanup.policy"));
        now.alter(op("cleanup.policy", "delete", OpType.SUBTRACT));
        equal("compact", now.value("cleanup.policy"));
        fails(InvalidConfigurationException.class, () -> now.alter(op("cleanup.policy", "shred", OpType.SET)));
        fails(InvalidConfigurationException.class, () -> now.alter(op("retention.ms", "1", OpType.APPEND)));
        fails(InvalidConfigurationException.class, () -> now.alter(op("no.such.key", "1", OpType.SET)));
        AlterConfigOp one = op("retention.ms", "1", OpType.SET), two = op("retention.ms", "2", OpType.SET);
        fails(InvalidRequestException.class, () -> now.alter(one, two));
        AlterConfigOp other = op("segment.ms", "77", OpType.SET);
        Map<ConfigResource, Collection<AlterConfigOp>> dry = Map.of(resource, List.of(other));
        get(admin.incrementalAlterConfigs(dry, new AlterConfigsOptions().validateOnly(true)).all());
        is(!now.value("segment.ms").equals("77"), "validation changed the config");
        ConfigResource missing = new ConfigResource(ConfigResource.Type.TOPIC, name("missing"));
        fails(UnknownTopicOrPartitionException.class, () -> get(admin.describeConfigs(List.of(missing)).all()));
        fails(UnknownTopicOrPartitionException.class,
            () -> get(admin.incrementalAlterConfigs(Map.of(missing, List.of(one))).all()));
    }

    static void brokerConfigs() throws Exception {
        int node = get(admin.describeCluster().nodes()).iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "" + node);
        Config config = get(admin.describeConfigs(List.of(broker)).all()).get(broker);
        is(config.get("listeners").value().contains("PLAINTEXT://127.0.0.1:"), "listeners");
        equal(ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG, config.get("log.dirs").source());
        equal("168", config.get("log.retention.hours").value());
    }

    static void groupsAdmin() throws Exception {
        String topic = topic(2, Map.of()), group = name("listed");
        TopicPartition one = new TopicPartition(topic, 1);
        Map<TopicPartition, OffsetAndMetadata> changed = Map.of(one, new OffsetAndMetadata(1));
        try (Member member = new Member(group, topic, "client.id", "the-client")) {
            settled(List.of(member), 2);
            member.ask(() -> member.consumer.commitSync(Map.of(one, new OffsetAndMetadata(5, "note"))));
            GroupListing listed = listing(group, new ListGroupsOptions()).orElseThrow();
            equal("consumer", listed.protocol());
            equal(GroupState.STABLE, listed.groupState().orElseThrow());
            ListGroupsOptions empty = new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY));
            is(listing(group, empty).isEmpty(), "listed as empty");
            ConsumerGroupDescription described = describedGroup(group);
            equal(GroupState.STABLE, described.groupState());
            equal("range", described.partitionAssignor());
            equal(1, described.members().size());
            MemberDescription only = described.members().iterator().next();
            equal("the-client", only.clientId());
            equal("/127.0.0.1", only.host());
            equal(Set.of(new TopicPartition(topic, 0), one), only.assignment().topicPartitions());
            equal(Map.of(one, new OffsetAndMetadata(5, Optional.empty(), "note")), committed(group));
            fails(GroupNotEmptyException.class, () -> get(admin.deleteConsumerGroups(List.of(group)).all()));
            fails(UnknownMemberIdException.class, () -> get(admin.alterConsumerGroupOffsets(group, changed).all()));
        }
        until(() -> describedGroup(group).groupState() == GroupState.EMPTY, "the empty group");
        get(admin.alterConsumerGroupOffsets(group, changed).all());
        equal(1L, committed(group).get(one).offset());
        get(admin.deleteConsumerGroups(List.of(group)).all());
        fails(GroupIdNotFoundException.class, () -> get(admin.deleteConsumerGroups(List.of(group)).all()));
        fails(GroupIdNotFoundException.class, () -> describedGroup(group));
        is(listing(group, new ListGroupsOptions()).isEmpty(), "still listed");
    }

    static Optional<GroupListing> listing(String group, ListGroupsOptions options) throws Exception {
        return get(admin.listGroups(options).all()).stream().filter(found -> found.groupId().equals(group)).findFirst();
    }

    static Map<TopicPartition, OffsetAndMetadata> committed(String group) throws Exception {
        return get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
    }

    static void listOffsets() throws Exception {
        String topic = topic(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = anHourAgo();
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, 0, 9, start);
        records.set(4, new ProducerRecord<>(topic, 0, start + 5000, bytes("newest"), bytes("v")));
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            send(producer, records);
        }
        class Ask {
            ListOffsetsResult.ListOffsetsResultInfo at(OffsetSpec spec) throws Exception {
                return get(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition));
            }
        }
        Ask ask = new Ask();
        equal(0L, ask.at(OffsetSpec.earliest()).offset());
        equal(9L, ask.at(OffsetSpec.latest()).offset());
        equal(4L, ask.at(OffsetSpec.maxTimestamp()).offset());
        equal(start + 5000, ask.at(OffsetSpec.maxTimestamp()).timestamp());
        equal(3L, ask.at(OffsetSpec.forTimestamp(start + 30)).offset());
        equal(-1L, ask.at(OffsetSpec.forTimestamp(start + 6000)).offset());
        equal(0L, ask.at(OffsetSpec.earliestLocal()).offset());
        TopicPartition missing = new TopicPartition(topic, 5);
        ListOffsetsOptions impatient = new ListOffsetsOptions().timeoutMs(1500);
        fails(KafkaException.class,
            () -> get(admin.listOffsets(Map.of(missing, OffsetSpec.latest()), impatient).partitionResult(missing)));
    }

    static void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        Node node = get(cluster.nodes()).iterator().next();
        equal(bootstrap, node.host() + ":" + node.port());
        equal(1, get(cluster.nodes()).size());
        equal(node.id(), get(cluster.controller()).id());
        equal(22, get(cluster.clusterId()).length());
    }
}
