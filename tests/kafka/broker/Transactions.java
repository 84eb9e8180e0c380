// Transactions of Java's clients, for restored_transactions.py.
//   Transactions load ADDRESS TOPIC PARTITIONS ID...   goes on until its input ends; "ID N commit|abort" before each end
//   Transactions end ADDRESS TOPIC PARTITIONS ID...    one transaction of each, over all partitions; "ID ok" or "ID error"
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Transactions {
  static KafkaProducer<String, String> producer(String address, String id) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", address);
    settings.put("transactional.id", id);
    settings.put("transaction.timeout.ms", "600000");
    settings.put("max.block.ms", "30000");
    settings.put("linger.ms", "0");
    return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
  }

  static synchronized void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  static void load(String address, String topic, int partitions, String id) {
    Random chance = new Random(id.hashCode());
    try (KafkaProducer<String, String> producer = producer(address, id)) {
      producer.initTransactions();
      for (int n = 0; ; n++) {
        Thread.sleep(chance.nextInt(50));
        producer.beginTransaction();
        for (int k = chance.nextInt(3); k >= 0; k--) {
          int place = chance.nextInt(partitions);
          producer.send(new ProducerRecord<>(topic, place, null, id + " " + n));
          if (chance.nextBoolean()) producer.flush();
        }
        producer.flush();
        if (chance.nextInt(8) == 0) Thread.sleep(chance.nextInt(300));
        boolean commits = chance.nextBoolean();
        say(id + " " + n + (commits ? " commit" : " abort"));
        if (commits) producer.commitTransaction();
        else producer.abortTransaction();
      }
    } catch (Exception error) {
      say(id + " error " + error);
      Runtime.getRuntime().halt(1);
    }
  }

  static void end(String address, String topic, int partitions, String id) {
    String done = id + " ok";
    for (int tries = 0; tries < 3; tries++) {
      try (KafkaProducer<String, String> producer = producer(address, id)) {
        producer.initTransactions();
        producer.beginTransaction();
        for (int place = 0; place < partitions; place++)
          producer.send(new ProducerRecord<>(topic, place, null, id + " end"));
        producer.commitTransaction();
        say(id + " ok");
        return;
      } catch (Exception error) {
        done = id + " error " + error;
      }
    }
    say(done);
  }

  public static void main(String[] words) throws Exception {
    int partitions = Integer.parseInt(words[3]);
    List<Thread> threads = new ArrayList<>();
    for (String id : Arrays.asList(words).subList(4, words.length)) {
      boolean loads = words[0].equals("load");
      Thread thread = new Thread(() -> {
        if (loads) load(words[1], words[2], partitions, id);
        else end(words[1], words[2], partitions, id);
      });
      thread.start();
      threads.add(thread);
    }
    if (words[0].equals("load")) {
      while (System.in.read() >= 0) { }
      Runtime.getRuntime().halt(0);
    }
    for (Thread thread : threads) thread.join();
    Runtime.getRuntime().halt(0);
  }
}
