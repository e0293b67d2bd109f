package rescale;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Kafka, keyBy, a count per key, Kafka: a result per record, key and count as decimal text.
 *
 * <p>Arguments: BROKER GROUP RESULTS BUFFER_MS SOURCES COUNTERS TOPIC... A record's value is 16 digits of the key and 16
 * of its scheduled time in µs; one of time 0 makes state and has no result.
 */
public final class FlinkCount {
    private static final int DIGITS = 16;

    private FlinkCount() {}

    public static void main(String[] given) throws Exception {
        String broker = given[0], group = given[1], results = given[2];
        int sources = Integer.parseInt(given[4]), counters = Integer.parseInt(given[5]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setBufferTimeout(Long.parseLong(given[3]));
        env.setMaxParallelism(128);
        env.getConfig().enableObjectReuse();
        KafkaSource<Tuple2<Long, Long>> source =
                KafkaSource.<Tuple2<Long, Long>>builder()
                        .setBootstrapServers(broker)
                        .setTopics(Arrays.copyOfRange(given, 6, given.length))
                        .setGroupId(group)
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setProperty("fetch.max.wait.ms", "20")
                        .setDeserializer(new Decode())
                        .build();
        KafkaSink<Tuple2<Long, Long>> sink =
                KafkaSink.<Tuple2<Long, Long>>builder()
                        .setBootstrapServers(broker)
                        .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                        .setProperty("linger.ms", "1")
                        .setRecordSerializer(new Encode(results))
                        .build();
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
                .uid("source")
                .setParallelism(sources)
                .keyBy(record -> record.f0, Types.LONG)
                .process(new Count())
                .uid("count")
                .name("keyed count")
                .setParallelism(counters)
                .sinkTo(sink)
                .uid("results")
                .name("results")
                .setParallelism(counters);
        env.execute("count");
    }

    private static long number(byte[] digits, int from) {
        long value = 0;
        for (int at = from; at < from + DIGITS; at++) {
            value = value * 10 + (digits[at] - '0');
        }
        return value;
    }

    private static byte[] text(long value) {
        return Long.toString(value).getBytes(StandardCharsets.US_ASCII);
    }

    static final class Decode implements KafkaRecordDeserializationSchema<Tuple2<Long, Long>> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<Long, Long>> out) {
            out.collect(Tuple2.of(number(record.value(), 0), number(record.value(), DIGITS)));
        }

        @Override
        public TypeInformation<Tuple2<Long, Long>> getProducedType() {
            return Types.TUPLE(Types.LONG, Types.LONG);
        }
    }

    static final class Encode implements KafkaRecordSerializationSchema<Tuple2<Long, Long>> {
        private final String topic;

        Encode(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                Tuple2<Long, Long> result, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(topic, text(result.f0), text(result.f1));
        }
    }

    static final class Count extends KeyedProcessFunction<Long, Tuple2<Long, Long>, Tuple2<Long, Long>> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Tuple2<Long, Long> record, Context context, Collector<Tuple2<Long, Long>> out)
                throws Exception {
            Long before = count.value();
            long now = before == null ? 1 : before + 1;
            count.update(now);
            if (record.f1 > 0) {
                out.collect(Tuple2.of(record.f0, now));
            }
        }
    }
}
