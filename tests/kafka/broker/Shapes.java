import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** SERVERS TOPIC PARTITIONS WORD SHAPE...: a producer for each shape writes to every partition; see restored_producers.py. */
public class Shapes {
    public static void main(String[] args) throws Exception {
        for (int i = 4; i < args.length; i++) {
            try {
                one(args, args[i]);
            } catch (Exception e) {
                System.out.println("failed " + args[3] + "/java/" + args[i] + " " + e);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);  // what is open stays open
    }

    static void one(String[] args, String shape) throws Exception {
        boolean plain = shape.equals("one") || shape.equals("three");
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        p.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        p.put("delivery.timeout.ms", "60000");
        p.put("max.block.ms", "60000");
        p.put("request.timeout.ms", "20000");
        if (!plain) {
            p.put("transactional.id", "java-" + args[1] + "-" + shape);
            p.put("transaction.timeout.ms", args[3].startsWith("old") ? "300000" : "15000");  // the old cluster ends none
        }
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p);
        if (!plain) {
            producer.initTransactions();
            producer.beginTransaction();
        }
        for (int n = 0; n < (shape.equals("three") ? 3 : 1); n++) {
            for (int partition = 0; partition < Integer.parseInt(args[2]); partition++) {
                String value = args[3] + "/java/" + shape + "/" + partition + "/" + n;
                try {
                    RecordMetadata at = producer.send(new ProducerRecord<>(args[1], partition, null, value.getBytes())).get();
                    System.out.println("ok " + value + " " + at.offset());
                } catch (Exception e) {
                    System.out.println("failed " + value + " " + String.valueOf(e.getMessage()).replace('\n', ' '));
                }
            }
        }
        try {
            if (shape.equals("commit")) producer.commitTransaction();
            if (shape.equals("abort")) producer.abortTransaction();
        } catch (Exception e) {
            System.out.println("failed " + args[3] + "/java/" + shape + " " + e);
        }
    }
}
