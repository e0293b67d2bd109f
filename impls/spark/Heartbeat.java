package rescale;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A streaming source without rows whose offset grows every second, or whenever Spark asks while its query is in a hurry.
 * Its metrics are those of the query.
 *
 * Spark begins an epoch when an offset of a source has grown. Offsets are whole numbers, as those of Spark's rate source,
 * so a checkpoint with that one goes on with this one.
 * Written for Janino, the compiler that Spark has: no lambdas, no generics.
 */
public class Heartbeat implements TableProvider {
    private static final String NAME = "name";
    private static final StructType SCHEMA = new StructType().add("beat", DataTypes.LongType);
    private static final Map IN_A_HURRY = new ConcurrentHashMap();  // by a heartbeat's name
    private static final Map METRICS = new ConcurrentHashMap();  // likewise

    /** Returns a stream of a heartbeat; the class is found although Spark's own class loader does not have it. */
    public Dataset load(SparkSession spark, String name) {
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(Heartbeat.class.getClassLoader());
        try {
            return spark.readStream().format(Heartbeat.class.getName()).option(NAME, name).load();
        } finally {
            thread.setContextClassLoader(before);
        }
    }

    /** Has the offset of a heartbeat grow whenever Spark asks, or every second only. */
    public void hurry(String name, boolean on) {
        if (on) {
            IN_A_HURRY.put(name, name);
        } else {
            IN_A_HURRY.remove(name);
        }
    }

    /** Takes the metrics of a heartbeat, as name=value with commas between them. */
    public void tell(String name, String metrics) {
        Map told = new HashMap();
        String[] pairs = metrics.split(",");
        for (int place = 0; place < pairs.length; place++) {
            String[] pair = pairs[place].split("=", 2);
            told.put(pair[0], pair[1]);
        }
        METRICS.put(name, told);
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return SCHEMA;
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new Beats(new CaseInsensitiveStringMap(properties).get(NAME));
    }

    /** The table, its scan, and how that is built. */
    private static class Beats implements Table, SupportsRead, ScanBuilder, Scan {
        private final String heartbeat;

        Beats(String heartbeat) {
            this.heartbeat = heartbeat;
        }

        public String name() {
            return "heartbeat";
        }

        public StructType schema() {
            return SCHEMA;
        }

        public Set capabilities() {
            return Collections.singleton(TableCapability.MICRO_BATCH_READ);
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return this;
        }

        public Scan build() {
            return this;
        }

        public StructType readSchema() {
            return SCHEMA;
        }

        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new Stream(heartbeat);
        }
    }

    /** Says how far the heartbeat is. */
    private static class Stream implements MicroBatchStream, SupportsAdmissionControl, ReportsSourceMetrics {
        private static final long BEAT_NS = 1000000000L;
        private final String heartbeat;
        private long beatNs = System.nanoTime() - BEAT_NS;

        Stream(String heartbeat) {
            this.heartbeat = heartbeat;
        }

        public Offset initialOffset() {
            return new At(0L);
        }

        public Offset deserializeOffset(String json) {
            return new At(Long.parseLong(json));
        }

        public Offset latestOffset(Offset start, ReadLimit limit) {
            long now = System.nanoTime();
            if (now - beatNs < BEAT_NS && !IN_A_HURRY.containsKey(heartbeat)) {
                return start;
            }
            beatNs = now;
            return new At(((At) start).number + 1L);
        }

        public Offset latestOffset() {
            throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is called instead");
        }

        public Map metrics(Optional latest) {
            Object told = METRICS.get(heartbeat);
            return told == null ? Collections.EMPTY_MAP : (Map) told;
        }

        public String toString() {
            return "rescale";
        }

        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            return new InputPartition[0];
        }

        public PartitionReaderFactory createReaderFactory() {
            return null;  // there is no partition to read
        }

        public void commit(Offset end) {
        }

        public void stop() {
            IN_A_HURRY.remove(heartbeat);
            METRICS.remove(heartbeat);
        }
    }

    /** The number of a beat. */
    private static class At extends Offset {
        final long number;

        At(long number) {
            this.number = number;
        }

        public String json() {
            return Long.toString(number);
        }
    }
}
