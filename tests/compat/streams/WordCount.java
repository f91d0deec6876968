package compat;

import java.io.FileInputStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words from one topic into another until standard input ends, with any release from 2.8 to 4.3. Arguments:
 * bootstrap servers, application id, input topic, output topic, state directory, processing guarantee, group protocol.
 * Says RUNNING once it has its partitions, and FAILED with the reason when it ends by itself. With a processing
 * guarantee that is exactly once each count is written, as there is no cache. CLIENT_FILE in the environment names a
 * properties file with more settings.
 */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        if (System.getenv("CLIENT_FILE") != null) {
            try (FileInputStream file = new FileInputStream(System.getenv("CLIENT_FILE"))) {
                settings.load(file);
            }
        }
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put("repartition.purge.interval.ms", "300"); // since 3.2; before it was the commit interval
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        settings.put("auto.offset.reset", "earliest");
        if (args.length > 5) {
            settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
            settings.put("statestore.cache.max.bytes", "0");
            settings.put("cache.max.bytes.buffering", "0"); // its name before 3.4
        }
        if (args.length > 6) {
            settings.put("group.protocol", args[6]);
        } else {
            // Members do not leave the group at their end: the next run waits for the end of their sessions.
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "500");
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) {
                System.out.println(now);
            }
        });
        streams.setUncaughtExceptionHandler(problem -> {
            Throwable cause = problem;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            System.out.println("FAILED " + cause);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        System.out.println(streams.close(Duration.ofSeconds(20)) ? "CLOSED" : "HANGS");
    }
}
