package compat;

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Orders of users, with exactly_once_v2 and a standby replica of each store, until standard input ends. Arguments:
 * bootstrap servers, application id (also the prefix of all topics), state directory.
 *
 * PREFIX-orders has orders by their id, `USER:AMOUNT`. They are joined with PREFIX-payments of the same id into
 * PREFIX-paid, by their user with the table PREFIX-users into PREFIX-named, and counted by user and minute into
 * PREFIX-minutes. A processor without the DSL adds the amounts of each user up into PREFIX-totals.
 */
public final class Orders {
    private static final Serde<String> TEXT = Serdes.String();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, "1");
        settings.put(StreamsConfig.PROBING_REBALANCE_INTERVAL_MS_CONFIG, "60000");
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        KafkaStreams streams = new KafkaStreams(topology(args[1] + "-"), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) {
                System.out.println(now);
            }
        });
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        System.out.println(streams.close(Duration.ofSeconds(20)) ? "CLOSED" : "HANGS");
    }

    private static Topology topology(String prefix) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> orders = builder.stream(prefix + "orders");
        KStream<String, String> payments = builder.stream(prefix + "payments");
        KTable<String, String> users = builder.table(prefix + "users");
        orders.join(payments, (order, payment) -> order + " " + payment,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(5), Duration.ofDays(1)))
            .to(prefix + "paid");
        KStream<String, String> byUser = orders
            .map((id, order) -> new KeyValue<>(order.split(":")[0], id + " " + order.split(":")[1]))
            .repartition(Repartitioned.with(TEXT, TEXT).withName("by-user"));
        byUser.join(users, (order, name) -> name + " " + order).to(prefix + "named");
        byUser.groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1)))
            .count(Materialized.<String, Long, org.apache.kafka.streams.state.WindowStore<Bytes, byte[]>>as("minutes")
                .withKeySerde(TEXT).withValueSerde(Serdes.Long()))
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(count -> Long.toString(count))
            .to(prefix + "minutes");
        byUser.to(prefix + "amounts");
        return builder.build()
            .addSource("amounts", TEXT.deserializer(), TEXT.deserializer(), prefix + "amounts")
            .addProcessor("adder", Totals::new, "amounts")
            .addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("totals"), TEXT, Serdes.Long()), "adder")
            .addSink("sums", prefix + "totals", TEXT.serializer(), TEXT.serializer(), "adder");
    }

    /** Adds up, and asks for a commit now and then, as programs of the low-level interface do. */
    private static final class Totals implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, Long> totals;

        @Override
        public void init(ProcessorContext<String, String> given) {
            context = given;
            totals = given.getStateStore("totals");
            given.schedule(Duration.ofMillis(500), PunctuationType.WALL_CLOCK_TIME, time -> context.commit());
        }

        @Override
        public void process(Record<String, String> record) {
            Long before = totals.get(record.key());
            long total = (before == null ? 0 : before) + Long.parseLong(record.value().split(" ")[1]);
            totals.put(record.key(), total);
            context.forward(record.withValue(Long.toString(total)));
        }
    }
}
