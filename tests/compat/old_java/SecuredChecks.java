package compat;

import java.io.*;
import java.lang.reflect.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Java clients from 0.10.2 to 4.3 on a secured broker: compiled once, against 0.10.2, and run with the jars of each.
 *
 * SecuredChecks FOLDER   does a round trip with each properties file in the folder, and prints a line for each: "PASS
 * name" or "FAIL name: why". The files have the settings of clients, and test.topic.
 */
public final class SecuredChecks {
    static final int WAIT_S = 30;

    public static void main(String[] arguments) throws Exception {
        File[] files = new File(arguments[0]).listFiles();
        Arrays.sort(files);
        for (File file : files) {
            String name = file.getName().replace(".properties", "");
            String result = "PASS " + name;
            try {
                roundTrip(name, file);
            } catch (Throwable problem) {
                StringBuilder causes = new StringBuilder();
                for (Throwable cause = problem; cause != null; cause = cause.getCause()) causes.append(cause).append("; ");
                result = "FAIL " + name + ": " + causes.toString().replace('\n', ' ');
            }
            System.out.println(result);
        }
        System.exit(0); // whatever threads a refused client left
    }

    static void roundTrip(String name, File file) throws Exception {
        Properties config = new Properties();
        try (InputStream text = new FileInputStream(file)) {
            config.load(text);
        }
        String topic = (String) config.remove("test.topic");
        List<String> written = Arrays.asList(name + "-0", name + "-1", name + "-2");
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String value : written)
                producer.send(new ProducerRecord<String, String>(topic, value)).get(WAIT_S, TimeUnit.SECONDS);
        }
        config.put("group.id", topic);
        config.put("enable.auto.commit", "false");
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, 0);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (found.size() < written.size() && System.nanoTime() < end)
                for (ConsumerRecord<String, String> record : poll(consumer)) found.add(record.value());
            consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(found.size())));
        }
        if (!found.equals(written)) throw new AssertionError("read " + found);
    }

    /** Its argument is a Duration from 2.0 on, and only that from 4.0 on. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            Method modern = KafkaConsumer.class.getMethod("poll", Duration.class);
            return (ConsumerRecords<String, String>) modern.invoke(consumer, Duration.ofMillis(200));
        } catch (NoSuchMethodException old) {
            Method method = KafkaConsumer.class.getMethod("poll", long.class);
            return (ConsumerRecords<String, String>) method.invoke(consumer, 200L);
        }
    }
}
