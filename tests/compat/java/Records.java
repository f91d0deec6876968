package compat;

import static compat.Checks.*;

import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.record.TimestampType;

/** Producing and consuming. */
final class Records {
    static void runAll() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            check("records[" + codec + "]", () -> records(codec));
        for (String acks : List.of("0", "1", "all")) check("acks[" + acks + "]", () -> acks(acks));
        check("idempotence", Records::idempotence);
        check("murmur2", Records::murmur2);
        check("places", Records::places);
        check("small-fetches", Records::smallFetches);
        check("auto-creation", Records::autoCreation);
        check("too-large", Records::tooLarge);
        check("unknown-topic", Records::unknownTopic);
    }

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
}
