package rescale;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka, repartition by key, a count per key, Kafka: a result per record, key and count as decimal text.
 *
 * <p>Arguments: BROKER APPLICATION RESULTS PORT THREADS PARTITIONS FOLDER TOPIC,TOPIC NAME=VALUE... with settings of
 * Kafka Streams. A record's value is 16 digits of the key and 16 of its scheduled time in µs; one of time 0 makes state
 * and has no result. At the port, GET /state tells of the threads, and POST /threads/N adds or removes some.
 */
public final class StreamsCount {
    private static final int DIGITS = 16;

    private StreamsCount() {}

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, given[1]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, given[4]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, given[6]);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0"); // else only the last of some results is sent
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG), "20");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), "1");
        for (String part : List.of(given).subList(8, given.length)) {
            settings.put(part.substring(0, part.indexOf('=')), part.substring(part.indexOf('=') + 1));
        }
        KafkaStreams streams = new KafkaStreams(topology(given), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.setStateListener(
                (now, before) -> {
                    if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                        ended.countDown();
                    }
                });
        HttpServer server = serve(streams, Integer.parseInt(given[3]));
        // one that does not leave its group keeps its tasks until its session ends, 45 s later
        CloseOptions leaving =
                CloseOptions.timeout(Duration.ofSeconds(8))
                        .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.start();
        ended.await();
        server.stop(0);
        System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
    }

    private static org.apache.kafka.streams.Topology topology(String[] given) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), Serdes.Long(), Serdes.Long()));
        builder.stream(List.of(given[7].split(",")), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .map((key, value) -> KeyValue.pair(number(value, 0), number(value, DIGITS)))
                .repartition(
                        Repartitioned.with(Serdes.Long(), Serdes.Long())
                                .withName("by-key")
                                .withNumberOfPartitions(Integer.parseInt(given[5])))
                .process(Count::new, "counts")
                .to(given[2], Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static long number(byte[] digits, int from) {
        long value = 0;
        for (int at = from; at < from + DIGITS; at++) {
            value = value * 10 + (digits[at] - '0');
        }
        return value;
    }

    static final class Count implements Processor<Long, Long, String, String> {
        private KeyValueStore<Long, Long> counts;
        private ProcessorContext<String, String> context;

        @Override
        public void init(ProcessorContext<String, String> given) {
            context = given;
            counts = given.getStateStore("counts");
        }

        @Override
        public void process(Record<Long, Long> record) {
            Long before = counts.get(record.key());
            long now = before == null ? 1 : before + 1;
            counts.put(record.key(), now);
            if (record.value() > 0) {
                context.forward(record.withKey(Long.toString(record.key())).withValue(Long.toString(now)));
            }
        }
    }

    private static HttpServer serve(KafkaStreams streams, int port) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newCachedThreadPool(StreamsCount::daemon));
        server.createContext("/state", exchange -> answer(exchange, state(streams)));
        server.createContext(
                "/threads/",
                exchange -> {
                    String path = exchange.getRequestURI().getPath();
                    scale(streams, Integer.parseInt(path.substring(path.lastIndexOf('/') + 1)));
                    answer(exchange, state(streams));
                });
        server.start();
        return server;
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    private static void scale(KafkaStreams streams, int wanted) {
        int now = streams.metadataForLocalThreads().size();
        for (; now < wanted; now++) {
            streams.addStreamThread();
        }
        for (; now > wanted; now--) {
            streams.removeStreamThread(Duration.ofSeconds(60));
        }
    }

    private static String state(KafkaStreams streams) {
        String threads =
                streams.metadataForLocalThreads().stream().map(StreamsCount::told).collect(Collectors.joining(","));
        return "{\"state\":\"" + streams.state() + "\",\"threads\":[" + threads + "]}";
    }

    private static String told(ThreadMetadata thread) {
        String active = thread.activeTasks().stream().map(task -> "\"" + task.taskId() + "\"").collect(Collectors.joining(","));
        return "{\"state\":\"" + thread.threadState() + "\",\"active\":[" + active + "]}";
    }

    private static void answer(HttpExchange exchange, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
