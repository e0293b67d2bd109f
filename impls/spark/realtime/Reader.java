package rescale;

import java.util.Iterator;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.locks.LockSupport;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;

/** Reads records into a queue, as their source cannot be asked to wait for a limited time only. */
class Reader extends Thread {
    /** Stands behind the last record, or behind what came before a failure. */
    static final Object END = new Object();
    private static final int QUEUED_RECORDS_MAX = 8192;
    private static final long STOP_MS = 10000L;
    private static final long BROKER_WAIT_MIN_NS = 200000L;  // a record that is here already comes sooner
    private static final long SHORT_WAIT_NS = 3000000L;
    private static final int SHORT_WAITS_MIN = 3;  // in a row; after one it would rest within a burst, too
    private static final long REST_NS = 2000000L;

    final ArrayBlockingQueue queue = new ArrayBlockingQueue(QUEUED_RECORDS_MAX);
    private final Iterator records;
    private final TaskContext context;
    private volatile Throwable failure;
    private volatile boolean ended;
    private int shortWaits;  // for the broker, in a row

    Reader(Iterator records, TaskContext context) {
        super("rescale-router-reads");
        setDaemon(true);
        this.records = records;
        this.context = context;
    }

    public void run() {
        org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
        try {
            while (hasNext()) {
                queue.put(((InternalRow) records.next()).copy());  // the source uses its row again
            }
        } catch (Throwable thrown) {
            failure = thrown;
        }
        while (!ended) {  // nobody reads on when the task has ended
            try {
                queue.put(END);
                return;
            } catch (InterruptedException again) {
                continue;
            }
        }
    }

    /** Asks the source; rests after some short waits for the broker, so that its next answer brings more records. */
    private boolean hasNext() {
        long sinceNs = System.nanoTime();
        boolean more = records.hasNext();
        long waitedNs = System.nanoTime() - sinceNs;
        if (waitedNs > BROKER_WAIT_MIN_NS) {
            shortWaits = waitedNs < SHORT_WAIT_NS ? shortWaits + 1 : 0;
            if (shortWaits >= SHORT_WAITS_MIN && more) {
                LockSupport.parkNanos(REST_NS);
            }
        }
        return more;
    }

    /** Lets raise() throw this, and wakes who waits for a record; a full queue lets nobody wait. */
    void fail(Throwable thrown) {
        failure = thrown;
        queue.offer(END);
    }

    /** Throws what has failed, as itself where that needs no declaration. */
    void raise() {
        Throwable thrown = failure;
        if (thrown instanceof RuntimeException) {
            throw (RuntimeException) thrown;
        }
        if (thrown instanceof Error) {
            throw (Error) thrown;
        }
        if (thrown != null) {
            throw new RuntimeException(thrown);
        }
    }

    /** Ends the thread with the task. */
    void end() {
        ended = true;
        interrupt();
        try {
            join(STOP_MS);
        } catch (InterruptedException again) {
            Thread.currentThread().interrupt();
        }
    }
}
