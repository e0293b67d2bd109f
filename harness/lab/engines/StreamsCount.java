package rescale;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.UncheckedIOException;
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
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka, repartition by key, a count per key or NEXMark's query 8, Kafka.
 *
 * <p>Arguments: BROKER APPLICATION RESULTS PORT THREADS PARTITIONS FOLDER TOPIC,TOPIC QUERY NAME=VALUE... with settings
 * of Kafka Streams. At the port, GET /state tells of the threads, and POST /threads/N adds or removes some.
 *
 * <p>QUERY is count: a record's value is 16 digits of the key and 16 of its scheduled time in µs; one of time 0 makes
 * state and has no result; a result per record, key and count as decimal text. Or it is q8, as `impls/operators/nexmark`
 * defines it, on events as JSON; results are JSON too.
 */
public final class StreamsCount {
    private static final int DIGITS = 16;
    private static final long SIZE_MS = 10_000, KEPT_MS = 60_000; // a window's events may come so much later
    private static final ObjectMapper JSON = new ObjectMapper();

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
        for (String part : List.of(given).subList(9, given.length)) {
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
        KStream<byte[], byte[]> input =
                builder.stream(List.of(given[7].split(",")), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()));
        if (given[8].equals("q8")) {
            builder.addStateStore(
                    Stores.keyValueStoreBuilder(
                            Stores.persistentKeyValueStore("windows"), Serdes.String(), Serdes.String()));
            input.flatMap(StreamsCount::bySeller)
                    .repartition(
                            Repartitioned.with(Serdes.Long(), Serdes.String())
                                    .withName("by-key")
                                    .withNumberOfPartitions(Integer.parseInt(given[5])))
                    .process(Sellers::new, "windows")
                    .to(given[2], Produced.with(Serdes.String(), Serdes.String()));
            return builder.build();
        }
        builder.addStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), Serdes.Long(), Serdes.Long()));
        input
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

    /** A person, or an auction by its seller, as the text START|NAME in JSON| or START||AUCTION,RESERVE. */
    private static List<KeyValue<Long, String>> bySeller(byte[] key, byte[] value) {
        try {
            JsonNode read = JSON.readTree(value);
            if (read.has("bidder")) {
                return List.of();
            }
            long time = read.get("dateTime").asLong(), id = read.get("id").asLong(), start = time - time % SIZE_MS;
            if (read.has("seller")) {
                String auction = start + "||" + id + "," + read.get("reserve").asLong();
                return List.of(KeyValue.pair(read.get("seller").asLong(), auction));
            }
            return List.of(KeyValue.pair(id, start + "|" + read.get("name") + "|"));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Keeps of each person and window the name, or the auctions that wait for it, under START/ID; forgets windows. */
    static final class Sellers implements Processor<Long, String, String, String> {
        private KeyValueStore<String, String> windows;
        private ProcessorContext<String, String> context;
        private long latest;

        @Override
        public void init(ProcessorContext<String, String> given) {
            context = given;
            windows = given.getStateStore("windows");
            given.schedule(Duration.ofSeconds(10), PunctuationType.WALL_CLOCK_TIME, now -> forget());
        }

        @Override
        public void process(Record<Long, String> record) {
            String[] parts = record.value().split("\\|", -1);
            long start = Long.parseLong(parts[0]);
            latest = Math.max(latest, start);
            String place = String.format("%016d/%d", start, record.key()), kept = windows.get(place);
            boolean known = kept != null && kept.startsWith("\"");
            if (!parts[1].isEmpty()) {
                for (String auction : kept == null || known ? new String[0] : kept.split(";")) {
                    send(record, start, parts[1], auction);
                }
                windows.put(place, parts[1]);
            } else if (known) {
                send(record, start, kept, parts[2]);
            } else {
                windows.put(place, kept == null ? parts[2] : kept + ";" + parts[2]);
            }
        }

        private void send(Record<Long, String> record, long start, String name, String auction) {
            String[] numbers = auction.split(",");
            String row = "{\"start\":" + start + ",\"id\":" + record.key() + ",\"name\":" + name + ",\"auction\":"
                    + numbers[0] + ",\"reserve\":" + numbers[1] + "}";
            context.forward(record.withKey(Long.toString(record.key())).withValue(row));
        }

        private void forget() {
            String end = String.format("%016d/", Math.max(0, latest - KEPT_MS));
            try (KeyValueIterator<String, String> old = windows.range(String.format("%016d/", 0), end)) {
                while (old.hasNext()) {
                    windows.delete(old.next().key);
                }
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
