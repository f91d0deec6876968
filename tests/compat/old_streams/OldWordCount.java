package compat;

import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStreamBuilder;
import org.apache.kafka.streams.processor.StateStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The word count of ../streams with Kafka Streams 0.10.2, at least once, until standard input ends. Arguments:
 * bootstrap servers, application id, input topic, output topic, state directory. Says RUNNING once it is started.
 */
public final class OldWordCount {
    @SuppressWarnings("unchecked")
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put(StreamsConfig.POLL_MS_CONFIG, "50");
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        Serde<String> text = Serdes.String();
        StateStoreSupplier<KeyValueStore> counts = (StateStoreSupplier<KeyValueStore>) (StateStoreSupplier<?>)
            Stores.create("counts").withKeys(text).withValues(Serdes.Long()).inMemory().build();
        KStreamBuilder builder = new KStreamBuilder();
        builder.stream(text, text, args[2])
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .map((key, word) -> new KeyValue<>(word, word))
            .groupByKey(text, text)
            .count(counts)
            .mapValues(count -> Long.toString(count))
            .to(text, text, args[3]);
        KafkaStreams streams = new KafkaStreams(builder, new StreamsConfig(settings));
        streams.start();
        System.out.println("RUNNING");
        while (System.in.read() >= 0) {
            continue;
        }
        System.out.println(streams.close(20, TimeUnit.SECONDS) ? "CLOSED" : "HANGS");
    }
}
