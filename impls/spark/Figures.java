package rescale;

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.CollectMetricsExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.AccumulatorContext;
import org.apache.spark.util.AccumulatorV2;

/**
 * Adds a row to the observed metrics of the epoch that a query runs. Called from Python, the same took some 25 calls.
 * Written for Janino, the compiler that Spark has: no lambdas, no generics.
 */
public class Figures {

    /**
     * @param query that is in the middle of an epoch
     * @param observed name of the observed metrics
     * @param text in the last column of the row; the other columns are null
     * @throws IllegalStateException where the epoch's plan has no metrics of that name
     */
    public void add(StreamingQueryWrapper query, String observed, String text) {
        CollectMetricsExec node = find(query.streamingQuery().lastExecution().executedPlan(), observed);
        if (node == null) {
            throw new IllegalStateException("the plan of the epoch has no metrics " + observed);
        }
        int width = node.child().output().size();
        GenericInternalRow row = new GenericInternalRow(width);
        row.update(width - 1, UTF8String.fromString(text));
        ((AccumulatorV2) AccumulatorContext.get(node.accumulatorId()).get()).add(row);
    }

    private static CollectMetricsExec find(SparkPlan plan, String observed) {
        if (plan instanceof CollectMetricsExec && ((CollectMetricsExec) plan).name().equals(observed)) {
            return (CollectMetricsExec) plan;
        }
        for (int place = plan.children().size() - 1; place >= 0; place--) {  // it is in the last one
            CollectMetricsExec found = find((SparkPlan) plan.children().apply(place), observed);
            if (found != null) {
                return found;
            }
        }
        return null;
    }
}
