package compat;

import static compat.Checks.*;
import static compat.Groups.*;

import java.time.Duration;
import java.util.*;
import java.util.function.BiConsumer;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members with group.protocol=consumer (KIP-848): one program for all checks.
 *
 * ConsumerProtocol BOOTSTRAP PREFIX   prints a line for each check, as Checks does. The brokers send heartbeat
 * intervals of some 100 ms and end sessions after some seconds. test_consumer_groups.py knows the names.
 */
public final class ConsumerProtocol {
    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        prefix = arguments[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        check("share", ConsumerProtocol::share);
        check("assignors", ConsumerProtocol::assignors);
        check("static-member", ConsumerProtocol::staticMember);
        check("pattern", ConsumerProtocol::pattern);
        check("topics-change", ConsumerProtocol::topicsChange);
        check("commit", ConsumerProtocol::commit);
        check("transaction", ConsumerProtocol::transaction);
        check("admin", ConsumerProtocol::administration);
        check("removal", ConsumerProtocol::removal);
        check("both-protocols", ConsumerProtocol::bothProtocols);
        admin.close(Duration.ofSeconds(5));
        System.out.println("DONE");
        System.exit(0); // whatever threads a failed check left
    }

    /** A consumer as Checks makes it, but for what only classic groups can be configured with. */
    static KafkaConsumer<byte[], byte[]> member(String group, Object... settings) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", "consumer",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 100,
            "allow.auto.create.topics", false));
        for (int at = 0; at < settings.length; at += 2) config.put((String) settings[at], settings[at + 1]);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Member join(String group, List<String> topics, Object... settings) {
        return new Member(member(group, settings), (consumer, listener) -> consumer.subscribe(topics, listener));
    }

    static Member join(String group, String topic, Object... settings) {
        return join(group, List.of(topic), settings);
    }

    static int owned(Member member) throws Exception {
        int[] count = new int[1];
        member.ask(() -> count[0] = member.consumer.assignment().size());
        return count[0];
    }

    /** Two share, and each reads what is its own; one leaves, and the other gets the rest at once. */
    static void share() throws Exception {
        String topic = topic(4, Map.of()), group = name("group");
        try (Member first = join(group, topic)) {
            settled(List.of(first), 4);
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            Member second = join(group, topic);
            try (second) {
                settled(List.of(first, second), 2, 2);
                equal(List.of(new TreeSet<>(second.owned)), first.revocations);
                for (int partition = 0; partition < 4; partition++)
                    records.addAll(assorted(topic, partition, 10, anHourAgo()));
                try (KafkaProducer<byte[], byte[]> producer = producer()) {
                    send(producer, records);
                }
                until(() -> first.read.size() + second.read.size() >= 40, "all records");
                for (Member member : List.of(first, second))
                    for (ConsumerRecord<byte[], byte[]> record : member.read)
                        is(member.owned.contains(record.partition()), "a record at the wrong member");
                List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>(first.read);
                read.addAll(second.read);
                read.sort(Comparator.comparingLong(r -> r.partition() * 1000 + r.offset()));
                equal(sent(records), read(read));
            }
            settled(List.of(first), 4);
            equal(null, first.problem);
            equal(null, second.problem);
        }
    }

    /** The broker assigns: range puts the same partitions of each topic together, uniform spreads all of them. */
    static void assignors() throws Exception {
        List<String> topics = List.of(topic(3, Map.of()), topic(3, Map.of()));
        for (String assignor : List.of("range", "uniform")) {
            String group = name(assignor);
            try (Member first = join(group, topics, "group.remote.assignor", assignor);
                    Member second = join(group, topics, "group.remote.assignor", assignor)) {
                List<Integer> expected = assignor.equals("range") ? List.of(2, 4) : List.of(3, 3);
                until(() -> Stream.of(owned(first), owned(second)).sorted().toList().equals(expected), assignor);
                equal(assignor, describedGroup(group).partitionAssignor());
            }
        }
        Member unknown = join(name("unknown"), topics, "group.remote.assignor", "sticky");
        try (unknown) {
            until(() -> unknown.problem instanceof UnsupportedAssignorException, "the refusal of an assignor");
        }
    }

    /** A static member that stops for a while keeps its partitions; another of its name is refused meanwhile. */
    static void staticMember() throws Exception {
        String topic = topic(4, Map.of()), group = name("static");
        try (Member first = join(group, topic, "group.instance.id", "one")) {
            settled(List.of(first), 4);
            Member second = join(group, topic, "group.instance.id", "two");
            settled(List.of(first, second), 2, 2);
            Set<Integer> owned = new TreeSet<>(second.owned);
            int seen = first.revocations.size();
            second.close();
            try (Member back = join(group, topic, "group.instance.id", "two")) {
                until(() -> back.owned.size() == 2, "its partitions");
                equal(owned, new TreeSet<>(back.owned));
                equal(seen, first.revocations.size());
                equal(List.of("one", "two"),
                    describedGroup(group).members().stream().map(m -> m.groupInstanceId().get()).sorted().toList());
                Member doubled = join(group, topic, "group.instance.id", "one");
                try (doubled) {
                    until(() -> doubled.problem instanceof UnreleasedInstanceIdException, "the refusal of a double");
                }
                equal(null, first.problem);
            }
        }
    }

    /** A static member that is away can be removed by its name. */
    static void removal() throws Exception {
        String topic = topic(4, Map.of()), group = name("removed");
        try (Member first = join(group, topic)) {
            Member second = join(group, topic, "group.instance.id", "two");
            settled(List.of(first, second), 2, 2);
            second.close();
            var removal = new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("two")));
            get(admin.removeMembersFromConsumerGroup(group, removal).all());
            settled(List.of(first), 4);
        }
    }

    /** Regular expressions of RE2 are resolved by the broker, also for topics that are made later. */
    static void pattern() throws Exception {
        String common = name("pattern"), group = name("group");
        create(new NewTopic(common + "-a", 1, (short) 1), new NewTopic(common + "-b", 2, (short) 1));
        SubscriptionPattern expression = new SubscriptionPattern(common + "-[a-c]");
        BiConsumer<KafkaConsumer<byte[], byte[]>, ConsumerRebalanceListener> subscribe =
            (consumer, listener) -> consumer.subscribe(expression, listener);
        try (Member first = new Member(member(group), subscribe); Member second = new Member(member(group), subscribe)) {
            until(() -> owned(first) + owned(second) == 3, "three partitions");
            create(new NewTopic(common + "-c", 2, (short) 1), new NewTopic(common + "-d", 2, (short) 1));
            until(() -> owned(first) + owned(second) == 5, "a new topic's two more");
        }
        Member wrong = new Member(member(name("wrong")),
            (consumer, listener) -> consumer.subscribe(new SubscriptionPattern("(?=a)"), listener));
        try (wrong) {
            until(() -> wrong.problem instanceof InvalidRegularExpression, "the refusal of an expression");
        }
    }

    /** More partitions and a topic that is made after the subscription reach the members. */
    static void topicsChange() throws Exception {
        String topic = topic(1, Map.of()), later = name("later"), group = name("group");
        try (Member first = join(group, List.of(topic, later)); Member second = join(group, List.of(topic, later))) {
            until(() -> owned(first) + owned(second) == 1, "a partition");
            Administration.grow(topic, NewPartitions.increaseTo(4));
            until(() -> owned(first) == 2 && owned(second) == 2, "four partitions");
            create(new NewTopic(later, 2, (short) 1));
            until(() -> owned(first) == 3 && owned(second) == 3, "those of the new topic");
            get(admin.deleteTopics(List.of(later)).all());
            until(() -> owned(first) == 2 && owned(second) == 2, "the end of the topic");
        }
    }

    static void commit() throws Exception {
        String topic = topic(1, Map.of()), group = name("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        List<ProducerRecord<byte[], byte[]>> records = assorted(topic, 0, 10, anHourAgo());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            send(producer, records);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = member(group, "max.poll.records", 4)) {
            consumer.subscribe(List.of(topic));
            take(consumer, 4);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, Optional.of(0), "so far")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = member(group, "enable.auto.commit", true)) {
            consumer.subscribe(List.of(topic));
            equal(sent(records.subList(4, 10)), read(take(consumer, 6)));
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            equal(new OffsetAndMetadata(4, Optional.of(0), "so far"), found);
        } // commits as it closes
        equal(10L, committed(group).get(partition).offset());
    }

    /** Offsets in a transaction: with the member epoch they count, with that of a member that left they are refused. */
    static void transaction() throws Exception {
        String topic = topic(1, Map.of()), group = name("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer("transactional.id", name("producer"))) {
            producer.initTransactions();
            ConsumerGroupMetadata[] metadata = new ConsumerGroupMetadata[1];
            try (Member member = join(group, topic)) {
                settled(List.of(member), 1);
                member.ask(() -> metadata[0] = member.consumer.groupMetadata());
                producer.beginTransaction();
                // With metadata of the topic, 4.4 sends its id with the offsets.
                producer.send(new ProducerRecord<>(topic, bytes("value")));
                producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(3)), metadata[0]);
                producer.commitTransaction();
                until(() -> committed(group).containsKey(partition), "the offset of the transaction");
                equal(3L, committed(group).get(partition).offset());
            }
            producer.beginTransaction();
            fails(CommitFailedException.class, () ->
                producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(4)), metadata[0]));
            producer.abortTransaction();
        }
        equal(3L, committed(group).get(partition).offset());
    }

    static void administration() throws Exception {
        String topic = topic(2, Map.of()), group = name("listed");
        TopicPartition one = new TopicPartition(topic, 1);
        Map<TopicPartition, OffsetAndMetadata> changed = Map.of(one, new OffsetAndMetadata(1));
        ListGroupsOptions modern = new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER));
        try (Member member = join(group, topic, "client.id", "the-client", "client.rack", "a-rack")) {
            settled(List.of(member), 2);
            member.ask(() -> member.consumer.commitSync(Map.of(one, new OffsetAndMetadata(5, "note"))));
            until(() -> describedGroup(group).groupState() == GroupState.STABLE, "a stable group");
            GroupListing listed = listing(group, modern).orElseThrow();
            equal(GroupType.CONSUMER, listed.type().orElseThrow());
            equal("consumer", listed.protocol());
            equal(GroupState.STABLE, listed.groupState().orElseThrow());
            is(listing(group, new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))).isEmpty(), "listed as classic");
            ConsumerGroupDescription described = describedGroup(group);
            equal(GroupType.CONSUMER, described.type());
            equal("uniform", described.partitionAssignor());
            equal(described.groupEpoch(), described.targetAssignmentEpoch());
            MemberDescription only = described.members().iterator().next();
            equal(1, described.members().size());
            equal("the-client", only.clientId());
            equal("/127.0.0.1", only.host());
            equal(described.groupEpoch(), only.memberEpoch());
            equal(Optional.of(true), only.upgraded());
            equal(Set.of(new TopicPartition(topic, 0), one), only.assignment().topicPartitions());
            equal(only.assignment(), only.targetAssignment().orElseThrow());
            equal(Map.of(one, new OffsetAndMetadata(5, Optional.empty(), "note")), committed(group));
            fails(GroupNotEmptyException.class, () -> get(admin.deleteConsumerGroups(List.of(group)).all()));
            fails(UnknownMemberIdException.class, () -> get(admin.alterConsumerGroupOffsets(group, changed).all()));
            fails(GroupSubscribedToTopicException.class,
                () -> get(admin.deleteConsumerGroupOffsets(group, Set.of(one)).all()));
        }
        until(() -> describedGroup(group).groupState() == GroupState.EMPTY, "the empty group");
        get(admin.alterConsumerGroupOffsets(group, changed).all());
        equal(1L, committed(group).get(one).offset());
        get(admin.deleteConsumerGroupOffsets(group, Set.of(one)).all());
        get(admin.deleteConsumerGroups(List.of(group)).all());
        fails(GroupIdNotFoundException.class, () -> describedGroup(group));
        is(listing(group, new ListGroupsOptions()).isEmpty(), "still listed");
    }

    /** Members change from the classic protocol to the new one and back, one after the other; offsets stay. */
    static void bothProtocols() throws Exception {
        String topic = topic(4, Map.of()), group = name("both");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Member classic = new Member(group, topic); Member other = join(group, topic)) {
            settled(List.of(classic, other), 2, 2);
            equal(GroupType.CONSUMER, describedGroup(group).type());
            Member holder = classic.owned.contains(0) ? classic : other;
            holder.ask(() -> holder.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(7))));
            other.close();
            settled(List.of(classic), 4);
            until(() -> describedGroup(group).type() == GroupType.CLASSIC, "a classic group");
            equal(7L, committed(group).get(partition).offset());
            equal(null, classic.problem);
        }
    }
}
