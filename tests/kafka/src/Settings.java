import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Names of settings that are not secret to Kafka, by the type of resource. */
final class Settings {
    private Settings() { }

    static void main(String[] args) {
        Map<String, ConfigDef> all = new TreeMap<>();
        all.put("TOPIC", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy());
        all.put("BROKER", org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF);
        all.put("CLIENT_METRICS", org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef());
        all.put("GROUP", org.apache.kafka.coordinator.group.GroupConfig.CONFIG_DEF);
        all.forEach((kind, of) -> new TreeMap<>(of.configKeys()).values().stream()
            .filter(each -> each.type != ConfigDef.Type.PASSWORD)
            .forEach(each -> System.out.println(kind + " " + each.name)));
    }
}
