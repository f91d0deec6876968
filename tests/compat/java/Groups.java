package compat;

import static compat.Checks.*;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.BiConsumer;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;

/** Consumer groups, and their administration. */
final class Groups {
    static void runAll() {
        check("group[eager]", () -> group("org.apache.kafka.clients.consumer.RangeAssignor", false));
        check("group[cooperative]", () -> group("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", true));
        check("commit", Groups::commit);
        check("static-member", Groups::staticMember);
        check("enforced-rebalance", Groups::enforcedRebalance);
        check("pattern", Groups::pattern);
        check("groups-admin", Groups::groupsAdmin);
    }

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
            this(consumer(withGroup(group, settings)), (consumer, member) -> consumer.subscribe(List.of(topic), member));
        }

        /** Begins to poll a consumer that `subscribe` gives its subscription. */
        Member(KafkaConsumer<byte[], byte[]> subscribed,
                BiConsumer<KafkaConsumer<byte[], byte[]>, ConsumerRebalanceListener> subscribe) {
            consumer = subscribed;
            subscribe.accept(consumer, this);
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

        static Object[] withGroup(String group, Object... settings) {
            List<Object> all = new ArrayList<>(List.of("group.id", group));
            all.addAll(List.of(settings));
            return all.toArray();
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
}
