package compat;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a consumer group; members/launch.py documents the arguments, the commands and the lines. */
public final class Member {
    private static final Queue<String> commands = new ConcurrentLinkedQueue<>();
    private static KafkaConsumer<byte[], byte[]> consumer;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            settings.put(argument.substring(0, at), argument.substring(at + 1));
        }
        Thread reader = new Thread(Member::read);
        reader.setDaemon(true);
        reader.start();
        consumer = new KafkaConsumer<>(properties(settings), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        subscribe(settings.get("topics"));
        int owned = 0;
        while (true) {
            consumer.poll(Duration.ofMillis(50));
            int count = consumer.assignment().size();
            if (count != owned) {
                owned = count;
                System.out.println("owns " + owned);
            }
            String command = commands.poll();
            if (command == null) continue;
            if (command.equals("end")) break;
            subscribe(command.substring(command.indexOf(' ') + 1));
        }
        consumer.close();
        System.out.println("closed");
        System.exit(0);
    }

    private static Properties properties(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap"));
        properties.put("group.id", settings.get("group"));
        properties.put("client.id", settings.get("client"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("metadata.max.age.ms", "1000");
        if (settings.get("protocol").equals("consumer")) {
            properties.put("group.protocol", "consumer");
            return properties;
        }
        properties.put("session.timeout.ms", settings.get("session_ms"));
        properties.put("heartbeat.interval.ms", "500");
        String assignor = settings.get("assignor").equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor";
        properties.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        return properties;
    }

    private static void subscribe(String topics) {
        if (topics.startsWith("^")) consumer.subscribe(Pattern.compile(topics));
        else consumer.subscribe(Arrays.asList(topics.split(",")));
    }

    private static void read() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line; (line = lines.readLine()) != null; ) commands.add(line.trim());
        } catch (Exception problem) {
            System.out.println(problem);
        }
        commands.add("end");
    }
}
