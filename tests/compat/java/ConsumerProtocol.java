package compat;

import static compat.Checks.*;

import java.time.Duration;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Consumers with group.protocol=consumer (KIP-848) against a broker with short intervals.
 *
 * ConsumerProtocol BOOTSTRAP PREFIX   prints a line for each check, as Checks does.
 */
public final class ConsumerProtocol {
    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        prefix = arguments[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        check("shared[uniform]", () -> shared("uniform"));
        check("shared[range]", () -> shared("range"));
        check("pattern", ConsumerProtocol::pattern);
        check("static-member", ConsumerProtocol::staticMember);
        check("commit", ConsumerProtocol::commit);
        check("refused", ConsumerProtocol::refused);
        check("admin", ConsumerProtocol::administration);
        admin.close(Duration.ofSeconds(5));
        System.out.println("DONE");
        System.exit(0); // whatever threads a failed check left
    }

    static KafkaConsumer<byte[], byte[]> newConsumer(String group, Object... settings) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", "consumer",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 100));
        for (int at = 0; at < settings.length; at += 2) config.put((String) settings[at], settings[at + 1]);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Groups.Member member(String group, String topic, Object... settings) {
        return new Groups.Member(newConsumer(group, settings),
            (consumer, listener) -> consumer.subscribe(List.of(topic), listener));
    }

    static void shared(String assignor) throws Exception {
        String topic = topic(4, Map.of()), group = name("group");
        Object[] settings = {"group.remote.assignor", assignor};
        try (Groups.Member first = member(group, topic, settings)) {
            Groups.settled(List.of(first), 4);
            Groups.Member second = member(group, topic, settings);
            try (second) {
                Groups.settled(List.of(first, second), 2, 2);
                equal(List.of(new TreeSet<>(second.owned)), first.revocations);
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int partition = 0; partition < 4; partition++)
                    records.addAll(assorted(topic, partition, 10, anHourAgo()));
                try (KafkaProducer<byte[], byte[]> producer = producer()) {
                    send(producer, records);
                }
                until(() -> first.read.size() + second.read.size() >= 40, "all records");
                equal(assignor, describedGroup(group).partitionAssignor());
                for (Groups.Member member : List.of(first, second)) {
                    Set<Integer> from = member.read.stream().map(ConsumerRecord::partition).collect(Collectors.toSet());
                    equal(new HashSet<>(member.owned), from);
                    equal(20, member.read.size());
                }
            }
            Groups.settled(List.of(first), 4);
            get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(6))).all());
            Groups.settled(List.of(first), 6);
            equal(null, first.problem);
            equal(null, second.problem);
        }
    }

    static void pattern() throws Exception {
        String common = name("pattern"), group = name("group");
        get(admin.createTopics(List.of(new NewTopic(common + "-a", 2, (short) 1))).all());
        try (KafkaConsumer<byte[], byte[]> consumer = newConsumer(group)) {
            consumer.subscribe(new SubscriptionPattern(common + "-.*"));
            until(() -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.assignment().size() == 2;
            }, "two partitions");
            get(admin.createTopics(List.of(new NewTopic(common + "-b", 3, (short) 1))).all());
            until(() -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.assignment().size() == 5;
            }, "a new topic's three more");
        }
        try (KafkaConsumer<byte[], byte[]> consumer = newConsumer(group)) {
            consumer.subscribe(new SubscriptionPattern("(?=x)"));
            fails(InvalidRegularExpression.class, () -> until(() -> {
                consumer.poll(Duration.ofMillis(50));
                return false;
            }, "the refusal"));
        }
    }

    static void staticMember() throws Exception {
        String topic = topic(4, Map.of()), group = name("static");
        try (Groups.Member first = member(group, topic, "group.instance.id", "one")) {
            Groups.Member second = member(group, topic, "group.instance.id", "two");
            Groups.settled(List.of(first, second), 2, 2);
            Set<Integer> owned = new TreeSet<>(second.owned);
            int seen = first.revocations.size();
            second.close();
            try (Groups.Member back = member(group, topic, "group.instance.id", "two")) {
                until(() -> back.owned.size() == 2, "its partitions");
                equal(owned, new TreeSet<>(back.owned));
                equal(seen, first.revocations.size());
                equal(List.of("one", "two"),
                    describedGroup(group).members().stream().map(m -> m.groupInstanceId().get()).sorted().toList());
                try (Groups.Member doubled = member(group, topic, "group.instance.id", "one")) {
                    until(() -> doubled.problem instanceof UnreleasedInstanceIdException, "the refusal of a double");
                }
                equal(null, first.problem);
            }
        }
    }

    static void commit() throws Exception {
        String topic = topic(1, Map.of()), group = name("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            send(producer, assorted(topic, 0, 10, anHourAgo()));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = newConsumer(group, "max.poll.records", 4)) {
            consumer.subscribe(List.of(topic));
            take(consumer, 4);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, Optional.of(0), "so far")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = newConsumer(group, "enable.auto.commit", true)) {
            consumer.subscribe(List.of(topic));
            equal(6, take(consumer, 6).size());
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            equal(new OffsetAndMetadata(4, Optional.of(0), "so far"), found);
        } // commits as it closes
        equal(10L, Groups.committed(group).get(partition).offset());
    }

    static void refused() throws Exception {
        String topic = topic(1, Map.of()), group = name("group");
        try (Groups.Member member = member(group, topic, "group.remote.assignor", "sticky")) {
            until(() -> member.problem instanceof UnsupportedAssignorException, "the refusal of an assignor");
        }
    }

    static void administration() throws Exception {
        String topic = topic(2, Map.of()), group = name("listed");
        TopicPartition one = new TopicPartition(topic, 1);
        Map<TopicPartition, OffsetAndMetadata> changed = Map.of(one, new OffsetAndMetadata(1));
        try (Groups.Member member = member(group, topic, "client.id", "the-client", "client.rack", "r")) {
            Groups.settled(List.of(member), 2);
            member.ask(() -> member.consumer.commitSync(Map.of(one, new OffsetAndMetadata(5, "note"))));
            GroupListing listed = Groups.listing(group, new ListGroupsOptions()).orElseThrow();
            equal("consumer", listed.protocol());
            equal(GroupType.CONSUMER, listed.type().orElseThrow());
            ListGroupsOptions classic = new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC));
            is(Groups.listing(group, classic).isEmpty(), "listed as classic");
            until(() -> describedGroup(group).groupState() == GroupState.STABLE, "the stable group");
            ConsumerGroupDescription described = describedGroup(group);
            equal(GroupType.CONSUMER, described.type());
            equal(described.groupEpoch(), described.targetAssignmentEpoch());
            equal(1, described.members().size());
            MemberDescription only = described.members().iterator().next();
            equal("the-client", only.clientId());
            equal("/127.0.0.1", only.host());
            equal(described.groupEpoch(), only.memberEpoch());
            equal(Optional.of(true), only.upgraded());
            equal(Set.of(new TopicPartition(topic, 0), one), only.assignment().topicPartitions());
            equal(only.assignment(), only.targetAssignment().orElseThrow());
            fails(GroupNotEmptyException.class, () -> get(admin.deleteConsumerGroups(List.of(group)).all()));
            fails(UnknownMemberIdException.class, () -> get(admin.alterConsumerGroupOffsets(group, changed).all()));
            fails(GroupSubscribedToTopicException.class,
                () -> get(admin.deleteConsumerGroupOffsets(group, Set.of(one)).all()));
        }
        until(() -> describedGroup(group).groupState() == GroupState.EMPTY, "the empty group");
        get(admin.alterConsumerGroupOffsets(group, changed).all());
        equal(1L, Groups.committed(group).get(one).offset());
        get(admin.deleteConsumerGroupOffsets(group, Set.of(one)).all());
        get(admin.deleteConsumerGroups(List.of(group)).all());
        fails(GroupIdNotFoundException.class, () -> describedGroup(group));
        is(Groups.listing(group, new ListGroupsOptions()).isEmpty(), "still listed");
    }
}
