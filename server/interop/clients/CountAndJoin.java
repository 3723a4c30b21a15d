// A Kafka Streams application with exactly_once_v2, driven by the tests of this directory:
//
//   java -cp ... CountAndJoin BOOTSTRAP APPLICATION STATE_DIR WINDOW_MS
//
// It counts the words of the topic APPLICATION-lines into APPLICATION-counts, one record for each change of a count, and joins
// APPLICATION-left with APPLICATION-right, by key and within WINDOW_MS, into APPLICATION-pairs. It prints each state that it enters and runs
// until SIGTERM, and then whether it closed in time. Records are never too late: how the two sides of the join come in between each other changes no result.
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

public class CountAndJoin {
    public static void main(String[] args) throws Exception {
        String application = args[1];
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(application + "-lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("words"))
            .toStream()
            .mapValues(count -> count.toString())
            .to(application + "-counts", Produced.with(Serdes.String(), Serdes.String()));
        KStream<String, String> right = builder.stream(application + "-right");
        builder.<String, String>stream(application + "-left")
            .join(right, (a, b) -> a + "+" + b, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(Long.parseLong(args[3])), Duration.ofDays(1)),
                StreamJoined.as("pairs"))
            .to(application + "-pairs");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(args[0], application, args[2]));
        streams.setStateListener((now, before) -> System.out.println(now));
        // Apache's default ends the application; a thread that could not reach the broker is to be replaced instead.
        streams.setUncaughtExceptionHandler(e -> {
            System.err.println("replaced: " + e);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
            System.out.println("closed in time: " + streams.close(Duration.ofSeconds(30)))));
        streams.start();
    }

    static Properties settings(String bootstrap, String application, String stateDir) {
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        p.put(StreamsConfig.STATE_DIR_CONFIG, stateDir);
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        p.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        p.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every change of a count is a record
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        p.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 200);
        p.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        p.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000); // a killed instance is missed soon
        p.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        p.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 6000);
        return p;
    }
}
