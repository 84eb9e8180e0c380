import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
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

    /** For each line of a file, an object with settings of a topic: the values that a broker takes for these texts, or why it refuses them. */
    static void parsed(String[] args) throws Exception {
        ConfigDef definition = org.apache.kafka.storage.internals.log.LogConfig.configDefCopy();
        for (String line : Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8)) {
            Map<String, String> given = new TreeMap<>();
            for (Map.Entry<String, JsonNode> field : Oracle.JSON.readTree(line).properties()) given.put(field.getKey(), field.getValue().asText());
            ObjectNode answer = Oracle.JSON.createObjectNode();
            try {
                org.apache.kafka.storage.internals.log.LogConfig.validate(given);
                Map<String, Object> values = definition.parse(given);
                given.keySet().forEach(name -> answer.put(name, ConfigDef.convertToString(values.get(name), definition.configKeys().get(name).type)));
            } catch (org.apache.kafka.common.errors.ApiException | org.apache.kafka.common.config.ConfigException refusal) {
                answer.put("refused", String.valueOf(refusal.getMessage()));
            }
            System.out.println(Oracle.JSON.writer().with(com.fasterxml.jackson.core.JsonGenerator.Feature.ESCAPE_NON_ASCII).writeValueAsString(answer));
        }
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
