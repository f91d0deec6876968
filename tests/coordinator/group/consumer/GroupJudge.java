import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder;

/** Runs the assignors, the reconciliation and the hashes of Apache Kafka: a JSON document on each line, and its result. */
public class GroupJudge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode node = JSON.readTree(line);
            Object result =
                node.has("assignor") ? assign(node) : node.has("hashed") ? hash(node.get("hashed")) : reconcile(node);
            System.out.println(JSON.writeValueAsString(result));
        }
    }

    private static Object assign(JsonNode node) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        node.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = partitions(member.get("assigned"));
            assigned.forEach((topic, numbers) -> numbers.forEach(
                number -> owners.computeIfAbsent(topic, absent -> new HashMap<>()).put(number, entry.getKey())));
            members.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.ofNullable(member.get("rack").textValue()),
                Optional.ofNullable(member.get("instance").textValue()), topics, new Assignment(assigned)));
        });
        JsonNode counts = node.get("topics");
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.get(topic.toString()).asInt();
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                throw new AssertionError("an assignor of Apache Kafka regards racks");
            }
        };
        SubscriptionType type =
            subscriptions.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        var spec = new GroupSpecImpl(members, type, owners);
        var assignor = node.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, Object> result = new TreeMap<>();
        assignor.assign(spec, topics).members().forEach((name, assignment) -> {
            Map<String, List<Integer>> byTopic = new TreeMap<>();
            assignment.partitions().forEach((topic, numbers) -> byTopic.put(topic.toString(), new ArrayList<>(numbers)));
            result.put(name, byTopic);
        });
        return result;
    }

    /** The hash of each topic, and of all. */
    private static Object hash(JsonNode topics) {
        Map<String, Long> hashes = new TreeMap<>();
        topics.fields().forEachRemaining(entry -> {
            JsonNode racks = entry.getValue().get("racks");
            Object topic = Proxy.newProxyInstance(
                GroupJudge.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.TopicMetadata.class},
                (proxy, method, arguments) -> switch (method.getName()) {
                    case "id" -> Uuid.fromString(entry.getValue().get("id").asText());
                    case "name" -> entry.getKey();
                    case "partitionCount" -> racks.size();
                    case "partitionRacks" -> {
                        List<String> found = new ArrayList<>();
                        racks.get((int) arguments[0]).forEach(rack -> found.add(rack.asText()));
                        yield found;
                    }
                    default -> throw new UnsupportedOperationException(method.getName());
                });
            var image = (CoordinatorMetadataImage) Proxy.newProxyInstance(
                GroupJudge.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class},
                (proxy, method, arguments) -> Optional.of(topic));
            hashes.put(entry.getKey(), Utils.computeTopicHash(entry.getKey(), image));
        });
        return List.of(hashes, Utils.computeGroupHash(hashes));
    }

    private static Object reconcile(JsonNode node) {
        Map<Uuid, Map<Integer, Integer>> epochs = epochs(node.get("epochs"));
        List<String> subscribed = new ArrayList<>();
        node.get("subscribed").forEach(topic -> subscribed.add(topic.asText()));
        ConsumerGroupMember member = new ConsumerGroupMember.Builder("m")
            .setState(MemberState.fromValue((byte) node.get("state").asInt()))
            .setMemberEpoch(node.get("epoch").asInt())
            .setPreviousMemberEpoch(node.get("previous").asInt())
            .setAssignedPartitions(epochs(node.get("assigned")))
            .setPartitionsPendingRevocation(epochs(node.get("pending")))
            .setSubscribedTopicNames(subscribed)
            .build();
        List<ConsumerGroupHeartbeatRequestData.TopicPartitions> owned = null;
        if (!node.get("owned").isNull()) {
            owned = new ArrayList<>();
            for (var entry : partitions(node.get("owned")).entrySet()) {
                owned.add(new ConsumerGroupHeartbeatRequestData.TopicPartitions()
                    .setTopicId(entry.getKey()).setPartitions(new ArrayList<>(entry.getValue())));
            }
        }
        boolean consistent = member.assignedPartitions().keySet().stream()
            .allMatch(topic -> subscribed.contains(topic.toString()));
        ConsumerGroupMember after;
        try {
            after = new CurrentAssignmentBuilder(member)
                .withMetadataImage(image())
                .withTargetAssignment(
                    node.get("targetEpoch").asInt(), new Assignment(partitions(node.get("target"))))
                .withHasSubscriptionChanged(!consistent)
                .withResolvedRegularExpressions(Map.of())
                .withCurrentPartitionEpoch((topic, number) -> epochs.getOrDefault(topic, Map.of())
                    .getOrDefault(number, -1))
                .withOwnedTopicPartitions(owned)
                .build();
        } catch (org.apache.kafka.common.errors.FencedMemberEpochException error) {
            return "fenced";
        }
        return List.of(
            (int) after.state().value(), after.memberEpoch(), after.previousMemberEpoch(),
            named(after.assignedPartitions()), named(after.partitionsPendingRevocation()));
    }

    /** A topic has its id as its name. */
    private static CoordinatorMetadataImage image() {
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(
            GroupJudge.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, arguments) -> {
                if (!method.getName().equals("topicMetadata")) {
                    throw new UnsupportedOperationException(method.getName());
                }
                Uuid id = Uuid.fromString(arguments[0].toString());
                return Optional.of(Proxy.newProxyInstance(
                    GroupJudge.class.getClassLoader(),
                    new Class<?>[] {CoordinatorMetadataImage.TopicMetadata.class},
                    (topic, inner, none) -> inner.getName().equals("id") ? id : id.toString()));
            });
    }

    private static Map<Uuid, Set<Integer>> partitions(JsonNode node) {
        Map<Uuid, Set<Integer>> found = new HashMap<>();
        node.fields().forEachRemaining(entry -> {
            Set<Integer> numbers = new HashSet<>();
            entry.getValue().forEach(number -> numbers.add(number.asInt()));
            found.put(Uuid.fromString(entry.getKey()), numbers);
        });
        return found;
    }

    private static Map<Uuid, Map<Integer, Integer>> epochs(JsonNode node) {
        Map<Uuid, Map<Integer, Integer>> found = new HashMap<>();
        node.fields().forEachRemaining(entry -> {
            Map<Integer, Integer> byPartition = new HashMap<>();
            entry.getValue().fields().forEachRemaining(
                inner -> byPartition.put(Integer.parseInt(inner.getKey()), inner.getValue().asInt()));
            found.put(Uuid.fromString(entry.getKey()), byPartition);
        });
        return found;
    }

    private static Map<String, Object> named(Map<Uuid, Map<Integer, Integer>> partitions) {
        Map<String, Object> found = new TreeMap<>();
        partitions.forEach((topic, epochs) -> found.put(topic.toString(), new TreeMap<>(epochs)));
        return found;
    }
}
