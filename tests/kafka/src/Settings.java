import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.config.DynamicBrokerConfig;

/** Settings by the type of resource, and errors. */
final class Settings {
    private Settings() { }

    private static Map<String, ConfigDef> all() {
        Map<String, ConfigDef> all = new TreeMap<>();
        all.put("TOPIC", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy());
        all.put("BROKER", org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF);
        all.put("CLIENT_METRICS", org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef());
        all.put("GROUP", org.apache.kafka.coordinator.group.GroupConfig.CONFIG_DEF);
        return all;
    }

    /** Names of settings that are not secret to Kafka. */
    static void main(String[] args) {
        all().forEach((kind, of) -> new TreeMap<>(of.configKeys()).values().stream()
            .filter(each -> each.type != ConfigDef.Type.PASSWORD)
            .forEach(each -> System.out.println(kind + " " + each.name)));
    }

    /** What a server tells of them: type, whether it can be changed while a broker runs, default, check; then all errors. */
    static void described() {
        all().forEach((kind, of) -> new TreeMap<>(of.configKeys()).values().stream()
            .filter(each -> !each.internalConfig)
            .forEach(each -> System.out.println(String.join("\t", kind, each.name, each.type.name(),
                DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS.contains(each.name) ? "dynamic" : "",
                each.defaultValue == ConfigDef.NO_DEFAULT_VALUE || each.defaultValue == null
                    ? "\0" : ConfigDef.convertToString(each.defaultValue, each.type),
                each.validator == null ? "" : each.validator.toString()))));
        org.apache.kafka.server.config.ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.forEach((topic, broker) ->
            System.out.println(String.join("\t", "SYNONYM", topic, broker)));
        for (Errors each : Errors.values()) {
            System.out.println(String.join("\t", "ERROR", each.name(), String.valueOf(each.code())));
        }
    }
}
