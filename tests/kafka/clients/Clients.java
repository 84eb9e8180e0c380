import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;

/** The capabilities by Kafka's own client, of any version from 2.8 on (answers.py says how it is called). */
public class Clients {
    static final int LONGEST = 200;
    static final long PATIENCE_MS = 20_000;
    static final long LONGEST_MS = 60_000;

    static String bootstrap;
    static Map<String, Object> spec;

    interface Capability { Object answer() throws Exception; }

    static class Stalled extends RuntimeException { Stalled(String where) { super("nothing for 20 s: " + where); } }

    static class Patience {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        void progress() { until = System.currentTimeMillis() + PATIENCE_MS; }
        void check(Object where) { if (System.currentTimeMillis() > until) throw new Stalled(String.valueOf(where)); }
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        spec = map(new Json(Files.readString(Paths.get(args[1]))).value());
        if (spec.containsKey("members")) { members(); System.exit(0); }
        Map<String, Capability> known = new LinkedHashMap<>();
        known.put("list", Clients::list);
        known.put("describe", Clients::describe);
        known.put("records", () -> read(map(spec.get("topics")), "read_uncommitted"));
        known.put("committed", () -> read(map(spec.get("topics")), "read_committed"));
        known.put("legacy", () -> read(map(spec.get("legacy")), "read_uncommitted"));
        known.put("times", Clients::times);
        known.put("reset", Clients::reset);
        known.put("group", () -> group("classic"));
        known.put("produce", Clients::produce);
        known.put("truncated", Clients::truncated);
        known.put("sessions", Clients::sessions);
        if (newProtocol()) known.put("new group", () -> group("consumer"));
        for (Object each : (List<?>) spec.get("capabilities")) {
            Capability capability = known.get(each);
            if (capability == null) continue;
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("capability", each);
            long began = System.currentTimeMillis();
            Thread here = Thread.currentThread();
            Timer timer = new Timer(true);
            timer.schedule(new TimerTask() { public void run() { here.interrupt(); } }, LONGEST_MS, 5000);
            try {
                line.put("answer", capability.answer());
            } catch (Throwable error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                line.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            timer.cancel();
            Thread.interrupted();
            line.put("seconds", (System.currentTimeMillis() - began) / 1000.0);
            System.out.println(json(line));
        }
        System.exit(0);
    }

    /** From 4.0 on; in 3.9 it is a preview that other servers than 3.9 refuse. */
    static boolean newProtocol() {
        Properties about = new Properties();
        try (java.io.InputStream in = Clients.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            about.load(in);
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
        return !about.getProperty("version").matches("[23]\\..*");
    }

    // ---- clients ----

    static KafkaConsumer<byte[], byte[]> consumer(String... more) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("max.partition.fetch.bytes", "100000");
        for (int i = 0; i < more.length; i += 2) p.put(more[i], more[i + 1]);
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Admin admin() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        return Admin.create(p);
    }

    static List<TopicPartition> all(Map<String, Object> topics) {
        List<TopicPartition> found = new ArrayList<>();
        topics.forEach((topic, numbers) -> { for (Object n : (List<?>) numbers) found.add(new TopicPartition(topic, num(n))); });
        return found;
    }

    // ---- capabilities ----

    static Object list() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> c = consumer()) {
            c.listTopics().forEach((topic, infos) -> {
                TreeMap<Integer, Object> partitions = new TreeMap<>();
                for (PartitionInfo i : infos)
                    partitions.put(i.partition(), List.of(i.partition(), String.valueOf(i.leader() == null ? null : i.leader().id()),
                        i.replicas().length, i.inSyncReplicas().length, i.offlineReplicas().length));
                found.put(topic, new ArrayList<>(partitions.values()));
            });
        }
        try (Admin a = admin()) { found.put("of the admin client", new TreeSet<>(a.listTopics().names().get())); }
        return found;
    }

    static Object describe() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        try (Admin a = admin()) {
            Set<String> names = map(spec.get("topics")).keySet();
            for (KafkaFuture<TopicDescription> future : described(a.describeTopics(names)).values()) {
                TopicDescription t = future.get();
                List<Object> rows = new ArrayList<>();
                rows.add(t.isInternal());
                try { rows.add(TopicDescription.class.getMethod("topicId").invoke(t).toString()); } catch (NoSuchMethodException e) { rows.add(null); }
                for (org.apache.kafka.common.TopicPartitionInfo i : t.partitions())
                    rows.add(List.of(i.partition(), i.leader().id(), i.replicas().size(), i.isr().size()));
                found.put(t.name(), rows);
            }
            DescribeClusterResult cluster = a.describeCluster();
            found.put("cluster", List.of(cluster.nodes().get().size(), cluster.controller().get().id(), cluster.clusterId().get()));
        }
        return found;
    }

    /** Before 3.1 there are no ids, and another name. */
    @SuppressWarnings("unchecked")
    static Map<String, KafkaFuture<TopicDescription>> described(DescribeTopicsResult result) throws Exception {
        try {
            return (Map<String, KafkaFuture<TopicDescription>>) DescribeTopicsResult.class.getMethod("topicNameValues").invoke(result);
        } catch (NoSuchMethodException error) {
            return (Map<String, KafkaFuture<TopicDescription>>) DescribeTopicsResult.class.getMethod("values").invoke(result);
        }
    }

    static Object read(Map<String, Object> topics, String isolation) throws Exception {
        try (KafkaConsumer<byte[], byte[]> c = consumer("isolation.level", isolation)) {
            List<TopicPartition> mine = all(topics);
            c.assign(mine);
            Map<TopicPartition, Long> ends = c.endOffsets(mine), begins = c.beginningOffsets(mine);
            TreeMap<String, List<List<Object>>> rows = new TreeMap<>();
            topics.keySet().forEach(t -> rows.put(t, new ArrayList<>()));
            Patience patience = new Patience();
            while (true) {
                List<String> behind = new ArrayList<>();
                for (TopicPartition tp : mine) if (c.position(tp) < ends.get(tp)) behind.add(tp + " " + c.position(tp));
                if (behind.isEmpty()) break;
                patience.check(behind);
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    patience.progress();
                    rows.get(r.topic()).add(row(r));
                }
            }
            rows.values().forEach(each -> each.sort(Comparator.comparing((List<Object> r) -> (Integer) r.get(0)).thenComparing(r -> (Long) r.get(1))));
            TreeMap<String, Object> places = new TreeMap<>();
            for (TopicPartition tp : mine) places.put(tp.toString(), List.of(begins.get(tp), ends.get(tp), c.position(tp)));
            return new TreeMap<>(Map.of("rows", rows, "places", places));
        }
    }

    static List<Object> row(ConsumerRecord<byte[], byte[]> r) throws Exception {
        List<Object> headers = new ArrayList<>();
        for (Header h : r.headers()) headers.add(Arrays.asList(h.key(), data(h.value())));
        boolean stamped = r.timestampType() != TimestampType.NO_TIMESTAMP_TYPE && r.timestamp() >= 0;
        return Arrays.asList(r.partition(), r.offset(), stamped ? r.timestamp() : null, stamped ? r.timestampType().id : null,
            r.leaderEpoch().orElse(null), data(r.key()), data(r.value()), headers);
    }

    static Object times() throws Exception {
        TreeMap<String, Object> found = new TreeMap<>();
        List<TopicPartition> mine = all(map(spec.get("topics")));
        try (KafkaConsumer<byte[], byte[]> c = consumer()) {
            for (Object moment : (List<?>) spec.get("times")) {
                Map<TopicPartition, Long> asked = new HashMap<>();
                for (TopicPartition tp : mine) asked.put(tp, ((Number) moment).longValue());
                c.offsetsForTimes(asked).forEach((tp, at) -> found.put(tp + " " + moment,
                    at == null ? null : Arrays.asList(at.offset(), at.timestamp(), at.leaderEpoch().orElse(null))));
            }
        }
        List<OffsetSpec> kinds = new ArrayList<>(List.of(OffsetSpec.earliest(), OffsetSpec.latest()));
        for (String name : List.of("maxTimestamp", "earliestLocal", "latestTiered"))
            try { kinds.add((OffsetSpec) OffsetSpec.class.getMethod(name).invoke(null)); } catch (NoSuchMethodException e) { continue; }
        try (Admin a = admin()) {
            for (IsolationLevel isolation : IsolationLevel.values())
                for (OffsetSpec kind : kinds) {
                    Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
                    for (TopicPartition tp : mine) asked.put(tp, kind);
                    String name = " " + kind.getClass().getSimpleName() + " " + isolation;
                    ListOffsetsResult result = a.listOffsets(asked, new ListOffsetsOptions(isolation));
                    for (TopicPartition tp : mine) {
                        ListOffsetsResult.ListOffsetsResultInfo at = result.partitionResult(tp).get();
                        found.put(tp + name, Arrays.asList(at.offset(), at.timestamp(), at.leaderEpoch().orElse(null)));
                    }
                }
        }
        return found;
    }

    static Object reset() throws Exception {
        TreeMap<String, Object> found = new TreeMap<>();
        TopicPartition mine = partition((List<?>) spec.get("reset"));
        for (String where : List.of("earliest", "latest")) {
            try (KafkaConsumer<byte[], byte[]> c = consumer("auto.offset.reset", where)) {
                c.assign(List.of(mine));
                c.seek(mine, 100_000);
                Patience patience = new Patience();
                List<Long> offsets = new ArrayList<>();
                long until = System.currentTimeMillis() + 2000;
                while (c.position(mine) == 100_000 || System.currentTimeMillis() < until) {
                    patience.check(where);
                    for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) offsets.add(r.offset());
                }
                found.put(where, Arrays.asList(c.position(mine), offsets.isEmpty() ? null : offsets.get(0), offsets.size()));
            }
        }
        return found;
    }

    static Object group(String protocol) throws Exception {
        String topic = (String) spec.get("group");
        List<Object> turns = new ArrayList<>();
        for (int turn = 0; turn < 3; turn++) {
            String name = "java-" + protocol + spec.get("suffix");
            try (KafkaConsumer<byte[], byte[]> c = protocol.equals("classic") ? consumer("group.id", name) : consumer("group.id", name, "group.protocol", protocol)) {
                c.subscribe(List.of(topic));
                Patience patience = new Patience();
                List<List<Object>> rows = new ArrayList<>();
                Map<TopicPartition, Long> ends = null;
                while (true) {
                    patience.check(rows.size());
                    for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                        patience.progress();
                        rows.add(List.of(r.partition(), r.offset()));
                    }
                    if (ends == null && !c.assignment().isEmpty()) ends = c.endOffsets(c.assignment());
                    boolean over = ends != null;
                    if (over) for (TopicPartition tp : ends.keySet()) over &= c.position(tp) >= ends.get(tp);
                    if (over) break;
                }
                rows.sort(Comparator.comparing((List<Object> r) -> (Integer) r.get(0)).thenComparing(r -> (Long) r.get(1)));
                TreeMap<String, Object> kept = new TreeMap<>();
                c.committed(ends.keySet()).forEach((tp, at) -> kept.put(tp.toString(),
                    at == null ? null : Arrays.asList(at.offset(), at.metadata(), at.leaderEpoch().orElse(null))));
                TreeSet<Integer> numbers = new TreeSet<>();
                ends.keySet().forEach(tp -> numbers.add(tp.partition()));
                turns.add(List.of(rows, kept, numbers));
                if (turn == 0) c.commitSync();
                if (turn == 1) {
                    Map<TopicPartition, OffsetAndMetadata> earlier = new HashMap<>();
                    ends.keySet().forEach(tp -> earlier.put(tp, new OffsetAndMetadata(2, Optional.of(0), "words")));
                    c.commitSync(earlier);
                }
            }
        }
        return turns;
    }

    static Object produce() throws Exception {
        List<String> said = new ArrayList<>();
        for (String idempotent : List.of("false", "true")) {
            Properties p = new Properties();
            p.put("bootstrap.servers", bootstrap);
            p.put("enable.idempotence", idempotent);
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
                producer.send(new ProducerRecord<>((String) spec.get("refused"), 0, null, "x".getBytes())).get(20, TimeUnit.SECONDS);
                said.add("written");
            } catch (ExecutionException error) {
                said.add(error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage());
            }
        }
        return said;
    }

    static Object truncated() throws Exception {
        List<?> asked = (List<?>) spec.get("truncated");
        TopicPartition mine = partition(asked);
        TreeMap<String, Object> found = new TreeMap<>();
        for (String where : List.of("earliest", "none")) {
            try (KafkaConsumer<byte[], byte[]> c = consumer("auto.offset.reset", where)) {
                c.assign(List.of(mine));
                c.seek(mine, new OffsetAndMetadata(num(asked.get(2)), Optional.of(num(asked.get(3))), ""));
                Patience patience = new Patience();
                Object first = null;
                while (first == null) {
                    patience.check(c.position(mine));
                    for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) { first = r.offset(); break; }
                }
                found.put(where, first);
            } catch (LogTruncationException error) {
                found.put(where, "LogTruncationException: " + error.divergentOffsets());
            }
        }
        return found;
    }

    static Object sessions() throws Exception {
        List<?> asked = (List<?>) spec.get("many");
        try (KafkaConsumer<byte[], byte[]> c = consumer()) {
            List<TopicPartition> mine = new ArrayList<>();
            for (int n = 0; n < num(asked.get(1)); n++) mine.add(new TopicPartition((String) asked.get(0), n));
            c.assign(mine);
            Map<TopicPartition, Long> ends = c.endOffsets(mine);
            TreeMap<Integer, Object> rows = new TreeMap<>();
            Patience patience = new Patience();
            while (rows.size() < ends.values().stream().mapToLong(Long::longValue).sum()) {
                patience.check(rows.size());
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    patience.progress();
                    rows.put(r.partition(), List.of(r.partition(), r.offset(), new String(r.value())));
                }
            }
            for (int i = 0; i < 4; i++) c.poll(Duration.ofMillis(200));  // rounds in which nothing has changed
            c.seek(mine.get(7), 0);
            Object again = null;
            while (again == null) {
                patience.check("again");
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) again = List.of(r.partition(), r.offset());
            }
            return List.of(rows.values(), ends.values().stream().sorted().toArray(), again);
        }
    }

    static void members() throws Exception {
        Map<String, Object> asked = map(spec.get("members"));
        List<String> more = new ArrayList<>(List.of("group.id", (String) asked.get("group")));
        if ("consumer".equals(asked.get("protocol"))) more.addAll(List.of("group.protocol", "consumer"));
        else more.addAll(List.of("session.timeout.ms", "6000", "heartbeat.interval.ms", "500"));
        if (asked.get("static") != null) more.addAll(List.of("group.instance.id", (String) asked.get("static")));
        int count = num(asked.get("count"));
        List<TreeSet<Integer>> owned = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        boolean[] over = {false};
        for (int i = 0; i < count; i++) {
            owned.add(new TreeSet<>());
            int me = i;
            Thread t = new Thread(() -> {
                try (KafkaConsumer<byte[], byte[]> c = consumer(more.toArray(new String[0]))) {
                    c.subscribe(List.of((String) asked.get("topic")));
                    while (!over[0]) {
                        c.poll(Duration.ofMillis(100));
                        TreeSet<Integer> now = new TreeSet<>();
                        c.assignment().forEach(tp -> now.add(tp.partition()));
                        synchronized (owned) { owned.set(me, now); }
                    }
                }
            });
            t.start();
            threads.add(t);
        }
        Thread input = new Thread(() -> { try { while (System.in.read() >= 0) continue; } catch (Exception e) { over[0] = true; } over[0] = true; });
        input.setDaemon(true);
        input.start();
        String before = "";
        while (!over[0]) {
            String now;
            synchronized (owned) { now = json(Map.of("owned", owned)); }
            if (!now.equals(before)) System.out.println(now);
            before = now;
            Thread.sleep(20);
        }
        for (Thread t : threads) t.join();
    }

    // ---- JSON, which these clients do not bring along ----

    static TopicPartition partition(List<?> asked) { return new TopicPartition((String) asked.get(0), num(asked.get(1))); }

    static int num(Object value) { return ((Number) value).intValue(); }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object value) { return (Map<String, Object>) value; }

    static Object data(byte[] x) throws Exception {
        if (x == null) return null;
        if (x.length <= LONGEST) return Base64.getEncoder().encodeToString(x);
        StringBuilder s = new StringBuilder();
        for (byte y : MessageDigest.getInstance("SHA-1").digest(x)) s.append(String.format("%02x", y));
        return new TreeMap<>(Map.of("len", x.length, "sha1", s.toString()));
    }

    static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        if (value instanceof Object[]) return json(Arrays.asList((Object[]) value));
        if (value instanceof Collection) {
            StringJoiner s = new StringJoiner(",", "[", "]");
            for (Object each : (Collection<?>) value) s.add(json(each));
            return s.toString();
        }
        if (value instanceof Map) {
            StringJoiner s = new StringJoiner(",", "{", "}");
            ((Map<?, ?>) value).forEach((k, v) -> s.add(json(String.valueOf(k)) + ":" + json(v)));
            return s.toString();
        }
        StringBuilder s = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') s.append('\\').append(c);
            else if (c < 32 || c > 126) s.append(String.format("\\u%04x", (int) c));
            else s.append(c);
        }
        return s.append('"').toString();
    }

    /** Reads what Python's json module writes. */
    static class Json {
        final String text;
        int at;
        Json(String text) { this.text = text; }

        char peek() { while (Character.isWhitespace(text.charAt(at))) at++; return text.charAt(at); }

        boolean more(char end) { if (peek() == end) { at++; return false; } if (peek() == ',') at++; return true; }

        Object value() {
            char c = peek();
            if (c == '{') {
                Map<String, Object> found = new LinkedHashMap<>();
                at++;
                while (more('}')) { String name = (String) value(); peek(); at++; found.put(name, value()); }
                return found;
            }
            if (c == '[') {
                List<Object> found = new ArrayList<>();
                at++;
                while (more(']')) found.add(value());
                return found;
            }
            if (c == '"') {
                int end = text.indexOf('"', at + 1);
                String found = text.substring(at + 1, end);
                at = end + 1;
                return found;
            }
            int begin = at;
            while ("+-.truefalsn0123456789".indexOf(text.charAt(at)) >= 0) at++;
            String word = text.substring(begin, at);
            return word.equals("null") ? null : word.equals("true") ? (Object) true : word.equals("false") ? (Object) false : (Object) Long.valueOf(word);
        }
    }
}
