import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;

/**
 * Prints, when a producer is closed, how many records it has sent in all, each repetition included, as a line of JSON
 * like those of VerifiableProducer.
 */
public final class SentReport implements MetricsReporter {
    private final Map<String, KafkaMetric> totals = new ConcurrentHashMap<>();

    @Override
    public void configure(Map<String, ?> settings) {
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
        metrics.forEach(this::metricChange);
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        var name = metric.metricName();
        if (name.group().equals("producer-topic-metrics") && name.name().equals("record-send-total")) {
            totals.put(name.tags().get("topic"), metric);
        }
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
        long records = 0;
        for (KafkaMetric total : totals.values()) {
            records += ((Number) total.metricValue()).longValue();
        }
        System.out.printf(
                "{\"timestamp\":%d,\"name\":\"records_sent\",\"records\":%d}%n", System.currentTimeMillis(), records);
    }
}
