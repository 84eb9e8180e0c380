import java.io.*;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.server.log.remote.storage.Transferer;

/** Copies files for Kafka's LocalTieredStorage in two halves with a pause between them, so that a kill finds one half; one copy in forty fails. */
public class SlowTransferer implements Transferer {
    @Override
    public void transfer(File from, File to) throws IOException {
        if (from.exists()) write(Files.readAllBytes(from.toPath()), to);
    }

    @Override
    public void transfer(ByteBuffer from, File to) throws IOException {
        if (from == null || !from.hasRemaining()) return;
        byte[] data = new byte[from.remaining()];
        from.get(data);
        write(data, to);
    }

    private static void write(byte[] data, File to) throws IOException {
        ThreadLocalRandom chance = ThreadLocalRandom.current();
        int half = chance.nextInt(data.length + 1);
        try (FileOutputStream out = new FileOutputStream(to)) {
            out.write(data, 0, half);
            pause(chance.nextInt(1, 30));
            if (chance.nextInt(40) == 0) throw new IOException("a copy fails, as they do");
            out.write(data, half, data.length - half);
        }
        pause(chance.nextInt(1, 15));
    }

    private static void pause(int ms) throws IOException {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new InterruptedIOException();
        }
    }
}
