package rescale;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.python.UserDefinedPythonFunction;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs the job of an epoch in one call. Called from Python, Spark's `mapInArrow` and `collect` take some 30 calls.
 * Written for Janino, the compiler that Spark has: no lambdas, no generics.
 */
public class Step {

    /**
     * Applies a pickled function to the partitions of a Dataset, as `mapInArrow` does, and collects its answers.
     *
     * @param like a function for `mapInArrow` whose name, types and environment are taken
     * @param command the pickled function and the type of its rows
     * @param records whose partitions the function is given
     * @return of each row the length and the bytes of its text and those of its binary column, lengths as 4 bytes
     */
    public byte[] run(UserDefinedPythonFunction like, byte[] command, Dataset records) throws IOException {
        PythonFunction of = like.func();
        UserDefinedPythonFunction step = new UserDefinedPythonFunction(
            like.name(),
            new SimplePythonFunction(
                command, of.envVars(), of.pythonIncludes(), of.pythonExec(), of.pythonVer(), of.broadcastVars(),
                of.accumulator()),
            like.dataType(), like.pythonEvalType(), like.udfDeterministic(), like.transpiled(),
            like.transpiledInputTypes());
        String[] names = records.columns();
        List columns = new ArrayList(names.length);
        for (int place = 0; place < names.length; place++) {
            columns.add(records.col("`" + names[place].replace("`", "``") + "`"));
        }
        Dataset answers = records.mapInArrow(step.apply(CollectionConverters.asScala(columns).toSeq()), false, null);
        return packed(answers.queryExecution().executedPlan().executeCollect());
    }

    private static byte[] packed(InternalRow[] rows) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        for (int row = 0; row < rows.length; row++) {
            byte[] text = rows[row].getUTF8String(0).getBytes();
            byte[] binary = rows[row].getBinary(1);
            out.writeInt(text.length);
            out.write(text);
            out.writeInt(binary.length);
            out.write(binary);
        }
        return bytes.toByteArray();
    }
}
