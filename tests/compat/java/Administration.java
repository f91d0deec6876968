package compat;

import static compat.Checks.*;

import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;

/** Topics, configs, offsets and the cluster. */
final class Administration {
    static void runAll() {
        check("topics", Administration::topics);
        check("bad-topics", Administration::badTopics);
        check("configs", Administration::configs);
        check("broker-configs", Administration::brokerConfigs);
        check("list-offsets", Administration::listOffsets);
        check("cluster", Administration::cluster);
    }

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
