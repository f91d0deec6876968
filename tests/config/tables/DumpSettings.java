import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints Apache Kafka's settings: level, key, type, default, validator and update mode, separated by tabs. */
public class DumpSettings {
    public static void main(String[] arguments) throws Exception {
        dump("broker", AbstractKafkaConfig.CONFIG_DEF, DynamicBrokerConfig.dynamicConfigUpdateModes());
        dump("topic", LogConfig.configDefCopy(), null);
    }

    private static void dump(String level, ConfigDef definitions, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            Object value = key.defaultValue;
            String text = value == ConfigDef.NO_DEFAULT_VALUE ? "<NONE>" : value == null ? "<NULL>" : value.toString();
            String validator = key.validator == null ? "" : key.validator.toString();
            String mode = modes == null ? "-" : modes.getOrDefault(key.name, "read-only");
            System.out.println(String.join("\t",
                level, key.name, key.type.toString().toLowerCase(), text, validator, mode));
        }
    }
}
