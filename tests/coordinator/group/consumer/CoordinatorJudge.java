import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.ConsumerGroupDescribeResponseDataJsonConverter;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestDataJsonConverter;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatResponseDataJsonConverter;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorShard;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * The group coordinator of Apache Kafka without a log: a JSON document on each line is an operation, and the answer has
 * the response, the records, and the description of the group after it.
 */
public class CoordinatorJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final short VERSION = 1;

    private final Map<String, Topic> topics = new LinkedHashMap<>();
    private final Map<String, Alarm> alarms = new TreeMap<>();
    private final Map<String, Task> tasks = new LinkedHashMap<>();
    private final SnapshotRegistry registry = new SnapshotRegistry(new LogContext());
    private final GroupCoordinatorShard shard;
    private ArrayNode records = JsonNodeFactory.instance.arrayNode();
    private long nowMs;
    private long offset = 0;
    private long version = 1;

    private record Topic(Uuid id, int partitions) {
    }

    private record Alarm(long atMs, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> operation) {
    }

    private record Task(CoordinatorExecutor.TaskRunnable<Object> run,
                        CoordinatorExecutor.TaskOperation<CoordinatorRecord, Object> then) {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        CoordinatorJudge judge = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode operation = JSON.readTree(line);
            if (operation.has("begin")) {
                judge = new CoordinatorJudge(operation.get("begin"));
                System.out.println("{}");
            } else {
                System.out.println(JSON.writeValueAsString(judge.operate(operation)));
            }
            System.out.flush();
        }
    }

    @SuppressWarnings("unchecked")
    private CoordinatorJudge(JsonNode begin) throws Exception {
        nowMs = begin.get("nowMs").asLong();
        Map<String, String> settings = new HashMap<>();
        begin.get("settings").fields().forEachRemaining(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        var config = GroupCoordinatorConfig.fromProps(settings);
        var shareConfig = ShareGroupConfig.fromProps(Map.of());
        var configs = new GroupConfigManager(Map.of(), config, shareConfig);
        var builder = new GroupCoordinatorShard.Builder(config, configs);
        builder.withLogContext(new LogContext());
        builder.withSnapshotRegistry(registry);
        builder.withTime(proxy(Time.class, (self, method, arguments) -> switch (method.getName()) {
            case "milliseconds", "hiResClockMs" -> nowMs;
            case "nanoseconds" -> nowMs * 1_000_000;
            default -> throw new UnsupportedOperationException(method.getName());
        }));
        builder.withTimer(proxy(CoordinatorTimer.class, (self, method, arguments) -> {
            String key = (String) arguments[0];
            switch (method.getName()) {
                case "scheduleIfAbsent":
                    if (alarms.containsKey(key)) {
                        return null;
                    }
                    // as schedule
                case "schedule":
                    long delayMs = ((TimeUnit) arguments[2]).toMillis((long) arguments[1]);
                    alarms.put(key, new Alarm(
                        nowMs + delayMs,
                        (CoordinatorTimer.TimeoutOperation<CoordinatorRecord>) arguments[arguments.length - 1]));
                    return null;
                case "cancel":
                    alarms.remove(key);
                    return null;
                default:
                    return alarms.containsKey(key);
            }
        }));
        builder.withExecutor(proxy(CoordinatorExecutor.class, (self, method, arguments) -> {
            String key = (String) arguments[0];
            switch (method.getName()) {
                case "schedule":
                    return tasks.putIfAbsent(key, new Task(
                        (CoordinatorExecutor.TaskRunnable<Object>) arguments[1],
                        (CoordinatorExecutor.TaskOperation<CoordinatorRecord, Object>) arguments[2])) == null;
                case "cancel":
                    tasks.remove(key);
                    return null;
                default:
                    return tasks.containsKey(key);
            }
        }));
        builder.withCoordinatorMetrics(new GroupCoordinatorMetrics());
        builder.withTopicPartition(new TopicPartition("__consumer_offsets", 0));
        builder.withAuthorizerPlugin(Optional.empty());
        shard = builder.build();
        setTopics(begin.get("topics"));
        shard.onLoaded(image());
        alarms.clear();
    }

    private ObjectNode operate(JsonNode operation) throws Exception {
        records = JsonNodeFactory.instance.arrayNode();
        ObjectNode answer = JsonNodeFactory.instance.objectNode();
        if (operation.has("sleepMs")) {
            sleep(operation.get("sleepMs").asLong());
        } else if (operation.has("topics")) {
            changeTopics(operation.get("topics"));
        } else {
            var request = ConsumerGroupHeartbeatRequestDataJsonConverter.read(operation.get("heartbeat"), VERSION);
            try {
                var result = shard.consumerGroupHeartbeat(context(), request);
                replay(result.records());
                answer.set("response", ConsumerGroupHeartbeatResponseDataJsonConverter.write(result.response(), VERSION));
            } catch (ApiException error) {
                answer.put("error", Errors.forException(error).code());
                answer.put("message", error.getMessage());
            }
        }
        runTasks();
        answer.set("records", records);
        registry.idempotentCreateSnapshot(++offset);
        var described = shard.consumerGroupDescribe(List.of("g"), offset).get(0);
        registry.deleteSnapshotsUpTo(offset);
        answer.set("group", ConsumerGroupDescribeResponseDataJsonConverter.write(
            new org.apache.kafka.common.message.ConsumerGroupDescribeResponseData().setGroups(List.of(described)), VERSION)
            .get("groups").get(0));
        return answer;
    }

    private void sleep(long ms) throws Exception {
        long endMs = nowMs + ms;
        while (true) {
            String key = alarms.keySet().stream()
                .min(Comparator.comparingLong(name -> alarms.get(name).atMs())).orElse(null);
            if (key == null || alarms.get(key).atMs() > endMs) {
                break;
            }
            Alarm alarm = alarms.remove(key);
            nowMs = Math.max(nowMs, alarm.atMs());
            replay(alarm.operation().generateRecords().records());
            runTasks();
        }
        nowMs = endMs;
    }

    private void runTasks() throws Exception {
        while (!tasks.isEmpty()) {
            String key = tasks.keySet().iterator().next();
            Task task = tasks.remove(key);
            Object value;
            try {
                value = task.run().run();
            } catch (Throwable error) {
                throw new IllegalStateException(error);
            }
            replay(task.then().onComplete(value, null).records());
        }
    }

    private void replay(List<CoordinatorRecord> made) throws Exception {
        for (CoordinatorRecord record : made) {
            ObjectNode node = JsonNodeFactory.instance.objectNode();
            node.put("kind", record.key().apiKey());
            node.set("key", json(record.key(), (short) 0));
            node.set("value", record.value() == null
                ? null : json(record.value().message(), record.value().version()));
            records.add(node);
            shard.replay(offset++, -1, (short) -1, record);
        }
    }

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        return (JsonNode) Class.forName(message.getClass().getName() + "JsonConverter")
            .getMethod("write", message.getClass(), short.class).invoke(null, message, version);
    }

    // --- topics

    private void setTopics(JsonNode node) {
        topics.clear();
        node.fields().forEachRemaining(entry -> topics.put(entry.getKey(), new Topic(
            Uuid.fromString(entry.getValue().get(0).asText()), entry.getValue().get(1).asInt())));
    }

    private void changeTopics(JsonNode node) {
        Map<String, Topic> before = new HashMap<>(topics);
        setTopics(node);
        Set<Uuid> created = new HashSet<>();
        Set<Uuid> changed = new HashSet<>();
        Set<Uuid> deleted = new HashSet<>();
        topics.forEach((name, topic) -> {
            if (!before.containsKey(name)) {
                created.add(topic.id());
            }
            if (!topic.equals(before.get(name))) {
                changed.add(topic.id());
            }
        });
        CoordinatorMetadataImage old = image(before, version);
        before.forEach((name, topic) -> {
            if (!topics.containsKey(name)) {
                deleted.add(topic.id());
            }
        });
        version++;
        shard.onMetadataUpdate(proxy(CoordinatorMetadataDelta.class, (self, method, arguments) ->
            switch (method.getName()) {
                case "createdTopicIds" -> created;
                case "changedTopicIds" -> changed;
                case "deletedTopicIds" -> deleted;
                case "image" -> old;
                default -> throw new UnsupportedOperationException(method.getName());
            }), image());
    }

    private CoordinatorMetadataImage image() {
        return image(new HashMap<>(topics), version);
    }

    private static CoordinatorMetadataImage image(Map<String, Topic> topics, long version) {
        Map<Uuid, String> names = new HashMap<>();
        topics.forEach((name, topic) -> names.put(topic.id(), name));
        return proxy(CoordinatorMetadataImage.class, (self, method, arguments) -> switch (method.getName()) {
            case "topicIds" -> names.keySet();
            case "topicNames" -> topics.keySet();
            case "version" -> version;
            case "emptyDelta" -> CoordinatorMetadataDelta.EMPTY;
            case "isEmpty" -> topics.isEmpty();
            case "hashCode" -> System.identityHashCode(self);
            case "equals" -> self == arguments[0];
            case "topicMetadata" -> {
                String name = arguments[0] instanceof Uuid id ? names.get(id) : (String) arguments[0];
                Topic topic = name == null ? null : topics.get(name);
                yield topic == null ? Optional.empty() : Optional.of(metadata(name, topic));
            }
            default -> throw new UnsupportedOperationException(method.getName());
        });
    }

    private static CoordinatorMetadataImage.TopicMetadata metadata(String name, Topic topic) {
        return proxy(CoordinatorMetadataImage.TopicMetadata.class, (self, method, arguments) ->
            switch (method.getName()) {
                case "name" -> name;
                case "id" -> topic.id();
                case "partitionCount" -> topic.partitions();
                case "partitionRacks" -> new ArrayList<String>();
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    private static AuthorizableRequestContext context() {
        return proxy(AuthorizableRequestContext.class, (self, method, arguments) -> switch (method.getName()) {
            case "clientId" -> "client";
            case "clientAddress" -> InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
            case "requestVersion" -> (int) VERSION;
            default -> throw new UnsupportedOperationException(method.getName());
        });
    }

    @SuppressWarnings("unchecked")
    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return (T) Proxy.newProxyInstance(CoordinatorJudge.class.getClassLoader(), new Class<?>[] {type}, handler);
    }
}
