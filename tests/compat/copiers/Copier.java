package compat;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.*;

/**
 * Copies one topic into another in transactions, with any Java client from 0.11 to 4.4 (compiled against 1.1, for Java 8).
 * copiers/launch.py documents the arguments, the commands on standard input and the lines that this program prints.
 */
public final class Copier {
    private static final Semaphore go = new Semaphore(0);
    private static final Map<String, String> settings = new HashMap<>();
    private static volatile String hold = "";
    private static volatile boolean stopped = false;
    private static KafkaConsumer<byte[], byte[]> consumer;
    private static KafkaProducer<byte[], byte[]> producer;

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            settings.put(argument.substring(0, at), argument.substring(at + 1));
        }
        Thread commands = new Thread(Copier::commands);
        commands.setDaemon(true);
        commands.start();
        Random dice = new Random(Long.parseLong(settings.get("seed")));
        start();
        int outputs = Integer.parseInt(settings.get("outputs"));
        int aborts = Integer.parseInt(settings.get("aborts"));
        for (int number = 0; !stopped; ) {
            ConsumerRecords<byte[], byte[]> records = poll();
            if (records.isEmpty()) continue;
            boolean commit = dice.nextInt(100) >= aborts;
            try {
                copy(records, number++, commit, outputs);
            } catch (KafkaException problem) {
                recover(number - 1, problem);
                commit = false;
            }
            if (!commit) rewind();
        }
        producer.close();
        consumer.close();
        print("closed");
        System.exit(0);
    }

    private static void copy(ConsumerRecords<byte[], byte[]> records, int number, boolean commit, int outputs) {
        String fate = commit ? "commit" : "abort";
        phase("begun", number, fate);
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            int index = Integer.parseInt(value.substring(value.indexOf('.') + 1)) % outputs;
            byte[] copied = (value + "|" + settings.get("label") + "-" + number + "|" + fate).getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<byte[], byte[]>(settings.get("output"), index, null, copied));
            TopicPartition source = new TopicPartition(record.topic(), record.partition());
            offsets.put(source, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.flush();
        phase("produced", number, "" + records.count());
        sendOffsets(offsets);
        phase("offsets", number, "");
        phase("ending", number, fate);
        if (commit) producer.commitTransaction();
        else producer.abortTransaction();
        phase("ended", number, fate);
    }

    /** Aborts the transaction, or begins with a new producer; a fenced one ends the program. */
    private static void recover(int number, KafkaException problem) {
        print("failed " + number + " " + problem.toString().replace('\n', ' '));
        if (fenced(problem)) endFenced();
        try {
            producer.abortTransaction();
        } catch (KafkaException worse) {
            print("restarted " + number + " " + worse.toString().replace('\n', ' '));
            if (fenced(worse)) endFenced();
            producer.close();
            startProducer();
        }
    }

    private static boolean fenced(Throwable problem) {
        for (Throwable cause = problem; cause != null; cause = cause.getCause())
            if (cause instanceof ProducerFencedException || cause.getClass().getSimpleName().startsWith("Fenced")
                || cause.getClass().getSimpleName().equals("InvalidProducerEpochException")) return true;
        return false;
    }

    private static void endFenced() {
        print("fenced");
        System.exit(3);
    }

    private static void start() {
        Map<String, Object> config = new HashMap<>(common());
        config.put("group.id", settings.get("group"));
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("max.poll.records", Integer.parseInt(settings.get("size")));
        config.put("fetch.max.wait.ms", 100);
        if ("consumer".equals(settings.get("protocol"))) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("heartbeat.interval.ms", 1000);
            config.put("session.timeout.ms", 10_000);
        }
        config.put("request.timeout.ms", 11_000); // 1.1 and older demand more than a session
        String partitions = settings.getOrDefault("partitions", "");
        if (partitions.isEmpty()) config.put("group.instance.id", settings.get("id"));
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        startProducer();
        if (partitions.isEmpty()) {
            consumer.subscribe(Collections.singletonList(settings.get("input")));
        } else {
            List<TopicPartition> assigned = new ArrayList<>();
            for (String index : partitions.split(","))
                assigned.add(new TopicPartition(settings.get("input"), Integer.parseInt(index)));
            consumer.assign(assigned);
        }
        print("ready");
    }

    private static void startProducer() {
        Map<String, Object> config = new HashMap<>(common());
        config.put("transactional.id", settings.get("id"));
        config.put("transaction.timeout.ms", Integer.parseInt(settings.get("timeout_ms")));
        config.put("max.block.ms", 120_000);
        config.put("linger.ms", 5);
        config.put("enable.idempotence", true);
        config.put("retries", Integer.MAX_VALUE);
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
    }

    private static Map<String, Object> common() {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", settings.get("bootstrap"));
        config.put("request.timeout.ms", 5_000);
        config.put("default.api.timeout.ms", 120_000);
        config.put("metadata.max.age.ms", 5_000);
        config.put("reconnect.backoff.max.ms", 500);
        config.put("socket.connection.setup.timeout.ms", 3_000);
        return config;
    }

    /** Continue from what is committed: the input of an aborted transaction comes again. */
    private static void rewind() throws Exception {
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata committed = committed(partition);
            if (committed == null) consumer.seekToBeginning(Collections.singletonList(partition));
            else consumer.seek(partition, committed.offset());
        }
    }

    // Methods that no release has in common.

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll() throws Exception {
        try {
            Class<?> duration = Class.forName("java.time.Duration");
            Object wait = duration.getMethod("ofMillis", long.class).invoke(null, 100L);
            Method method = KafkaConsumer.class.getMethod("poll", duration);
            return (ConsumerRecords<byte[], byte[]>) method.invoke(consumer, wait);
        } catch (NoSuchMethodException old) {
            return (ConsumerRecords<byte[], byte[]>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
        }
    }

    private static OffsetAndMetadata committed(TopicPartition partition) throws Exception {
        try {
            Method method = KafkaConsumer.class.getMethod("committed", Set.class);
            return (OffsetAndMetadata) ((Map<?, ?>) method.invoke(consumer, Collections.singleton(partition))).get(partition);
        } catch (NoSuchMethodException old) {
            return (OffsetAndMetadata) KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, partition);
        }
    }

    private static void sendOffsets(Map<TopicPartition, OffsetAndMetadata> offsets) {
        try {
            try {
                Object metadata = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
                Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
                KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, kind).invoke(producer, offsets, metadata);
            } catch (NoSuchMethodException old) {
                Method method = KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class);
                method.invoke(producer, offsets, settings.get("group"));
            }
        } catch (java.lang.reflect.InvocationTargetException wrapped) {
            if (wrapped.getCause() instanceof RuntimeException) throw (RuntimeException) wrapped.getCause();
            throw new IllegalStateException(wrapped.getCause());
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    // Commands and lines.

    private static void commands() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith("hold ")) {
                    hold = line.substring(5);
                } else {
                    hold = "";
                    go.release();
                }
            }
        } catch (java.io.IOException end) {
            print("failed commands " + end);
        }
        stopped = true;
        hold = "";
        go.release();
    }

    private static void phase(String name, int number, String what) {
        print((name + " " + number + " " + what).trim());
        if (name.equals(hold)) {
            print("held " + name + " " + number);
            go.acquireUninterruptibly();
        }
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
