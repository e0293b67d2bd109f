package rescale;

import java.util.List;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CommitLog;
import org.apache.spark.sql.execution.streaming.checkpointing.CommitMetadataBase;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryCheckpointMetadata;
import org.apache.spark.sql.execution.streaming.state.StateRewriter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.runtime.AbstractFunction1;

/**
 * Writes rows of column families as the state of a native checkpoint, by what Spark has to repartition state.
 * Written for Janino, the compiler that Spark has: no lambdas, no generics.
 */
public class Rewrite {

    /** Rows (family, place, grouping key, then key and value of each family) to rows that Spark's writer takes. */
    public static class Narrow implements Function {
        private static final int FIRST = 3;  // column of the first family's key
        private final String[] families;
        private final int[] widths;
        private final int grouping;

        Narrow(String[] families, int[] widths, int grouping) {
            this.families = families;
            this.widths = widths;
            this.grouping = grouping;
        }

        /** Returns a row (grouping key, bytes of the key, bytes of the value, name of the family). */
        public Object call(Object given) {
            InternalRow row = (InternalRow) given;
            int family = row.getInt(0);
            int at = FIRST + 2 * family;
            Object[] narrow = new Object[] {
                row.getStruct(2, grouping).copy(), bytes(row, at), bytes(row, at + 1),
                UTF8String.fromString(families[family])
            };
            return new GenericInternalRow(narrow);
        }

        private byte[] bytes(InternalRow row, int column) {
            return ((UnsafeRow) row.getStruct(column, widths[column - FIRST])).getBytes();
        }
    }

    /**
     * Writes the state behind a batch and commits the batch.
     *
     * @param wide the rows, each in the partition of the state that it is for
     * @param names of the families, in order
     * @param like what Spark's reader of all column families gives of the template
     * @param template the native checkpoint behind its first batch, with the same operator and partitions
     * @param into the checkpoint, which has the batch's offsets and the template's metadata
     * @param batch number of the batch
     * @param watermark for the next batch, ms
     */
    public void run(
            Dataset wide, List names, Dataset like, String template, String into, long batch, long watermark) {
        SparkSession session = wide.sparkSession();
        StructType schema = wide.schema();
        int[] widths = new int[schema.length() - Narrow.FIRST];
        for (int place = 0; place < widths.length; place++) {
            widths[place] = width(schema, Narrow.FIRST + place);
        }
        Narrow narrow = new Narrow((String[]) names.toArray(new String[0]), widths, width(schema, 2));
        RDD rows = wide.queryExecution().toRdd().toJavaRDD().map(narrow).rdd();
        final Dataset given = session.internalCreateDataFrame(rows, like.schema(), false);
        AbstractFunction1 instead = new AbstractFunction1() {
            public Object apply(Object ignored) {
                return given;
            }
        };
        Configuration hadoop = session.sessionState().newHadoopConf();
        Option ids = new StateRewriter(
            session, 0L, batch, into, hadoop, Option.apply(template), Option.apply(instead), Option.empty()).run();
        CommitLog log = new StreamingQueryCheckpointMetadata(session, into, false).commitLog();
        CommitMetadataBase plain = log.createMetadata(
            watermark, ids, log.createMetadata$default$3(), ids.isDefined() ? CommitLog.VERSION_2() : CommitLog.VERSION_1());
        if (!log.add(batch, plain)) {
            throw new IllegalStateException("the batch " + batch + " is committed already");
        }
    }

    private static int width(StructType schema, int column) {
        return ((StructType) schema.apply(column).dataType()).length();
    }
}
