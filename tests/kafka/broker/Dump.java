// Kafka's own DumpLogSegments over the files below the working directory, into a folder.
// Started by broker.sh with the jars of Kafka's tools (`kafka.sh tools`).

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.GZIPOutputStream;

public class Dump {
    public static void main(String[] arguments) throws Exception {
        Path out = Paths.get(arguments[0]);
        org.apache.kafka.common.utils.Exit.setExitProcedure((code, msg) -> { throw new IllegalStateException("exit " + code + " " + msg); });
        Path here = Paths.get("").toAbsolutePath();
        PrintStream stdout = System.out, stderr = System.err;
        List<Path> dirs;
        try (Stream<Path> s = Files.walk(Paths.get("."))) {
            dirs = s.filter(Files::isDirectory).filter(d -> !d.equals(Paths.get("."))).sorted().collect(Collectors.toList());
        }
        Pattern segment = Pattern.compile("\\d{20}\\.(log|index|timeindex|txnindex|snapshot)|\\d{20}-\\d{10}\\.checkpoint|bootstrap\\.checkpoint");
        for (Path dir : dirs) {
            List<Path> files;
            try (Stream<Path> s = Files.list(dir)) {
                files = s.filter(f -> segment.matcher(f.getFileName().toString()).matches()).sorted().collect(Collectors.toList());
            }
            if (files.isEmpty()) continue;
            String name = dir.getFileName().toString();
            ByteArrayOutputStream buf = new ByteArrayOutputStream();
            for (Path f : files) {
                List<String> args = new ArrayList<>(List.of("--files", Paths.get(".").relativize(f).toString()));
                String fn = f.getFileName().toString();
                if (fn.endsWith(".log") || fn.endsWith(".checkpoint")) {
                    args.add("--deep-iteration");
                    if (name.startsWith("__consumer_offsets-")) args.add("--offsets-decoder");
                    else if (name.startsWith("__transaction_state-")) args.add("--transaction-log-decoder");
                    else if (name.startsWith("__share_group_state-")) args.add("--share-group-state-decoder");
                    else if (name.startsWith("__cluster_metadata-") || fn.endsWith(".checkpoint")) args.add("--cluster-metadata-decoder");
                    else if (!name.startsWith("large-") && !name.startsWith("crash-")) args.add("--print-data-log");
                }
                PrintStream p = new PrintStream(buf, true, "UTF-8");
                System.setOut(p);
                System.setErr(p);
                try { org.apache.kafka.tools.DumpLogSegments.main(args.toArray(new String[0])); }
                catch (Throwable e) { p.println("DumpLogSegments fails: " + e); }
                finally { p.flush(); System.setOut(stdout); System.setErr(stderr); }
            }
            Path target = out.resolve(Paths.get(".").relativize(dir).toString() + ".txt.gz");
            Files.createDirectories(target.getParent());
            try (GZIPOutputStream o = new GZIPOutputStream(new FileOutputStream(target.toFile())) { { def.setLevel(9); } }) {
                o.write(buf.toString("UTF-8").replace(here + "/", "").getBytes(StandardCharsets.UTF_8));
            }
        }
    }
}
