package compat;

import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Data folders by the Java admin client: bootstrap address and two folders in, one line for each finding out. */
final class LogDirs {
    private static Admin admin;
    private static final TopicPartition PARTITION = new TopicPartition("moved", 0);
    private static final TopicPartitionReplica REPLICA = new TopicPartitionReplica("moved", 0, 0);

    public static void main(String[] arguments) throws Exception {
        String first = arguments[1], second = arguments[2];
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        admin = Admin.create(settings);
        get(admin.createTopics(List.of(new NewTopic("moved", 1, (short) 1))).all());
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(settings, serializer, serializer)) {
            for (int number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>("moved", new byte[1000]));
            }
        }
        String before = place();
        String after = before.equals(first) ? second : first;
        get(admin.alterReplicaLogDirs(Map.of(REPLICA, after)).all());
        for (int tries = 0; tries < 200 && !place().equals(after); tries++) {
            Thread.sleep(50);
        }
        System.out.println("moved " + place().equals(after));
        System.out.println("nowhere " + failure(admin.alterReplicaLogDirs(Map.of(REPLICA, "/nowhere")).all()));
        var absent = new TopicPartitionReplica("absent", 0, 0);
        System.out.println("absent " + failure(admin.alterReplicaLogDirs(Map.of(absent, first)).all()));
        for (var folder : get(admin.describeLogDirs(List.of(0)).allDescriptions()).get(0).entrySet()) {
            LogDirDescription described = folder.getValue();
            ReplicaInfo replica = described.replicaInfos().get(PARTITION);
            boolean sized = described.totalBytes().getAsLong() >= described.usableBytes().getAsLong();
            String held = replica == null ? "none" : (replica.size() > 100_000) + " " + replica.isFuture();
            System.out.println((folder.getKey().equals(after) ? "target " : "source ") + sized + " " + held);
        }
        System.out.println("deleted " + get(deletion(RecordsToDelete.beforeOffset(40))).lowWatermark());
        System.out.println("beyond " + failure(deletion(RecordsToDelete.beforeOffset(101))));
        System.out.println("all " + get(deletion(RecordsToDelete.beforeOffset(-1))).lowWatermark());
        admin.close();
    }

    private static KafkaFuture<DeletedRecords> deletion(RecordsToDelete wanted) {
        return admin.deleteRecords(Map.of(PARTITION, wanted)).lowWatermarks().get(PARTITION);
    }

    private static String place() throws Exception {
        return get(admin.describeReplicaLogDirs(List.of(REPLICA)).all()).get(REPLICA).getCurrentReplicaLogDir();
    }

    private static String failure(KafkaFuture<?> future) throws Exception {
        try {
            return String.valueOf(get(future));
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(20, TimeUnit.SECONDS);
    }
}
