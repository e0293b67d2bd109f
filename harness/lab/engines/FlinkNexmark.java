package rescale;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Queries 5 and 8 of NEXMark as `impls/operators/nexmark` defines them, on events as JSON; results are JSON too.
 *
 * <p>Arguments: BROKER GROUP RESULTS BUFFER_MS SOURCES WORKERS QUERY DISORDER_MS TOPIC... The watermark goes by the
 * events that the query reads, in the partition that is least far.
 */
public final class FlinkNexmark {
    private static final long SIZE_MS = 10_000, PERIOD_MS = 5_000;

    private FlinkNexmark() {}

    public static void main(String[] given) throws Exception {
        String broker = given[0], group = given[1], results = given[2], query = given[6];
        int sources = Integer.parseInt(given[4]), workers = Integer.parseInt(given[5]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setBufferTimeout(Long.parseLong(given[3]));
        env.setMaxParallelism(128);
        KafkaSource<Event> source =
                KafkaSource.<Event>builder()
                        .setBootstrapServers(broker)
                        .setTopics(Arrays.copyOfRange(given, 8, given.length))
                        .setGroupId(group)
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setProperty("fetch.max.wait.ms", "20")
                        .setDeserializer(new Decode(query))
                        .build();
        WatermarkStrategy<Event> watermarks =
                WatermarkStrategy.<Event>forBoundedOutOfOrderness(Duration.ofMillis(Long.parseLong(given[7])))
                        .withTimestampAssigner((event, before) -> event.time);
        DataStream<Event> events =
                env.fromSource(source, watermarks, "source").uid("source").setParallelism(sources);
        SingleOutputStreamOperator<String> answers =
                query.equals("q5") ? hotItems(events, workers) : newSellers(events, workers);
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(broker)
                        .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                        .setProperty("linger.ms", "1")
                        .setRecordSerializer(new Encode(results))
                        .build();
        answers.sinkTo(sink).uid("results").name("results").setParallelism(workers);
        env.execute(query);
    }

    /** An event that a query reads: a bid on an auction, a new person, or an auction of a seller. */
    public static final class Event {
        public long time;
        public long key; // auction of a bid, id of a person, seller of an auction
        public String name; // of a person, null otherwise
        public long auction;
        public long reserve;
    }

    /** Query 5: counts of bids by auction in sliding windows, then the highest of each window. */
    private static SingleOutputStreamOperator<String> hotItems(DataStream<Event> bids, int workers) {
        return bids.keyBy(bid -> bid.key, Types.LONG)
                .window(SlidingEventTimeWindows.of(Duration.ofMillis(SIZE_MS), Duration.ofMillis(PERIOD_MS)))
                .aggregate(new Number(), new InWindow())
                .uid("bids")
                .name("keyed bids")
                .setParallelism(workers)
                .keyBy(count -> count.f0, Types.LONG)
                .process(new Highest())
                .uid("highest")
                .name("keyed highest")
                .setParallelism(workers);
    }

    /** Query 8: persons with the auctions that they open in the tumbling window in which they are new. */
    private static SingleOutputStreamOperator<String> newSellers(DataStream<Event> events, int workers) {
        return events.keyBy(event -> event.key, Types.LONG)
                .process(new Sellers())
                .uid("sellers")
                .name("keyed sellers")
                .setParallelism(workers);
    }

    static final class Decode implements KafkaRecordDeserializationSchema<Event> {
        private static final ObjectMapper JSON = new ObjectMapper();
        private final boolean bids;

        Decode(String query) {
            bids = query.equals("q5");
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Event> out)
                throws java.io.IOException {
            JsonNode read = JSON.readTree(record.value());
            if (read.has("bidder") != bids) {
                return;
            }
            Event event = new Event();
            event.time = read.get("dateTime").asLong();
            if (bids) {
                event.key = read.get("auction").asLong();
            } else if (read.has("seller")) {
                event.key = read.get("seller").asLong();
                event.auction = read.get("id").asLong();
                event.reserve = read.get("reserve").asLong();
            } else {
                event.key = read.get("id").asLong();
                event.name = read.get("name").asText();
            }
            out.collect(event);
        }

        @Override
        public TypeInformation<Event> getProducedType() {
            return Types.POJO(Event.class);
        }
    }

    static final class Encode implements KafkaRecordSerializationSchema<String> {
        private final String topic;

        Encode(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(String result, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(topic, result.getBytes(StandardCharsets.UTF_8));
        }
    }

    static final class Number implements AggregateFunction<Event, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Event bid, Long before) {
            return before + 1;
        }

        @Override
        public Long getResult(Long number) {
            return number;
        }

        @Override
        public Long merge(Long left, Long right) {
            return left + right;
        }
    }

    /** (start of the window, auction, bids). */
    static final class InWindow extends ProcessWindowFunction<Long, Tuple3<Long, Long, Long>, Long, TimeWindow> {
        @Override
        public void process(
                Long auction, Context context, Iterable<Long> number, Collector<Tuple3<Long, Long, Long>> out) {
            out.collect(Tuple3.of(context.window().getStart(), auction, number.iterator().next()));
        }
    }

    static final class Highest extends KeyedProcessFunction<Long, Tuple3<Long, Long, Long>, String> {
        private transient ListState<Tuple2<Long, Long>> best; // auctions with the most bids so far, all with as many

        @Override
        public void open(OpenContext context) {
            best =
                    getRuntimeContext()
                            .getListState(
                                    new ListStateDescriptor<>("best", Types.TUPLE(Types.LONG, Types.LONG)));
        }

        @Override
        public void processElement(Tuple3<Long, Long, Long> count, Context context, Collector<String> out)
                throws Exception {
            List<Tuple2<Long, Long>> before = new ArrayList<>();
            best.get().forEach(before::add);
            long most = before.isEmpty() ? 0 : before.get(0).f1;
            if (count.f2 > most) {
                best.update(List.of(Tuple2.of(count.f1, count.f2)));
            } else if (count.f2 == most) {
                best.add(Tuple2.of(count.f1, count.f2));
            }
            context.timerService().registerEventTimeTimer(count.f0 + SIZE_MS - 1);
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<String> out) throws Exception {
            for (Tuple2<Long, Long> one : best.get()) {
                out.collect(
                        "{\"start\":" + context.getCurrentKey() + ",\"auction\":" + one.f0 + ",\"bids\":" + one.f1 + "}");
            }
            best.clear();
        }
    }

    static final class Sellers extends KeyedProcessFunction<Long, Event, String> {
        private static final ObjectMapper JSON = new ObjectMapper();
        private transient MapState<Long, String> names; // by start of the window
        private transient MapState<Long, List<Tuple2<Long, Long>>> waiting; // auctions whose seller is not known yet

        @Override
        public void open(OpenContext context) {
            names = getRuntimeContext().getMapState(new MapStateDescriptor<>("names", Types.LONG, Types.STRING));
            waiting =
                    getRuntimeContext()
                            .getMapState(
                                    new MapStateDescriptor<>(
                                            "waiting",
                                            Types.LONG,
                                            Types.LIST(Types.TUPLE(Types.LONG, Types.LONG))));
        }

        @Override
        public void processElement(Event event, Context context, Collector<String> out) throws Exception {
            long start = event.time - event.time % SIZE_MS;
            context.timerService().registerEventTimeTimer(start + SIZE_MS - 1);
            if (event.name != null) {
                names.put(start, event.name);
                List<Tuple2<Long, Long>> auctions = waiting.get(start);
                for (Tuple2<Long, Long> auction : auctions == null ? List.<Tuple2<Long, Long>>of() : auctions) {
                    out.collect(row(start, event.key, event.name, auction.f0, auction.f1));
                }
                waiting.remove(start);
                return;
            }
            String name = names.get(start);
            if (name != null) {
                out.collect(row(start, event.key, name, event.auction, event.reserve));
                return;
            }
            List<Tuple2<Long, Long>> auctions = waiting.get(start);
            auctions = auctions == null ? new ArrayList<>() : new ArrayList<>(auctions);
            auctions.add(Tuple2.of(event.auction, event.reserve));
            waiting.put(start, auctions);
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<String> out) throws Exception {
            names.remove(time + 1 - SIZE_MS);
            waiting.remove(time + 1 - SIZE_MS);
        }

        private static String row(long start, long id, String name, long auction, long reserve) throws Exception {
            return "{\"start\":" + start + ",\"id\":" + id + ",\"name\":" + JSON.writeValueAsString(name)
                    + ",\"auction\":" + auction + ",\"reserve\":" + reserve + "}";
        }
    }
}
