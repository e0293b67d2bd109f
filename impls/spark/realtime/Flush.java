package rescale;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Hands rows on as they are, and two rows of nulls behind those that nothing follows in time.
 *
 * Arrow's writer sends a batch when it has found the batch full, and it looks only when it has the row behind. The first
 * of the two rows carries as many bytes in its last column as make any batch full; the second one is the row behind.
 * Written for Janino, the compiler that Spark has: no lambdas, no generics.
 */
public class Flush implements MapPartitionsFunction {
    private static final long serialVersionUID = 1L;
    private static final int QUEUED_ROWS_MAX = 4096;
    private static final Object END = new Object();

    private final int columns;
    private final int bytes;
    private final long idleNs;
    private final long lingerNs;

    /**
     * @param columns of a row, the last of which is binary
     * @param bytes that make an Arrow batch full
     * @param idleUs rows are sent when none has come for so long
     * @param lingerUs rows are sent when the first of them has waited for so long
     */
    public Flush(int columns, int bytes, int idleUs, int lingerUs) {
        this.columns = columns;
        this.bytes = bytes;
        this.idleNs = idleUs * 1000L;
        this.lingerNs = lingerUs * 1000L;
    }

    public Iterator call(Iterator rows) {
        Object[] full = new Object[columns];
        full[columns - 1] = new byte[bytes];
        Reader reader = new Reader(rows, TaskContext.get());
        TaskContext.get().addTaskCompletionListener(reader);
        reader.setDaemon(true);
        reader.start();
        return new Rows(reader, RowFactory.create(full), RowFactory.create(new Object[columns]), idleNs, lingerNs);
    }

    /** Reads the rows, as their source cannot be asked to wait for a limited time only. */
    private static class Reader extends Thread implements TaskCompletionListener {
        private static final long STOP_MS = 10000L;
        final ArrayBlockingQueue queue = new ArrayBlockingQueue(QUEUED_ROWS_MAX);
        private volatile Throwable failure;
        private volatile boolean ended;
        private final Iterator rows;
        private final TaskContext context;

        Reader(Iterator rows, TaskContext context) {
            super("rescale-flush-reader");
            this.rows = rows;
            this.context = context;
        }

        public void run() {
            org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
            try {
                while (rows.hasNext()) {
                    queue.put(rows.next());
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

        /** Throws what the source has thrown, as itself where that needs no declaration. */
        void raise() {
            if (failure instanceof RuntimeException) {
                throw (RuntimeException) failure;
            }
            if (failure instanceof Error) {
                throw (Error) failure;
            }
            if (failure != null) {
                throw new RuntimeException(failure);
            }
        }

        public void onTaskCompletion(TaskContext task) {
            ended = true;
            interrupt();
            try {
                join(STOP_MS);
            } catch (InterruptedException again) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static class Rows implements Iterator {
        private final Reader reader;
        private final Row full;
        private final Row behind;
        private final long idleNs;
        private final long lingerNs;
        private Object next;
        private boolean owed;
        private boolean ended;
        private int waiting;
        private long sinceNs;

        Rows(Reader reader, Row full, Row behind, long idleNs, long lingerNs) {
            this.reader = reader;
            this.full = full;
            this.behind = behind;
            this.idleNs = idleNs;
            this.lingerNs = lingerNs;
        }

        public boolean hasNext() {
            if (next == null && !ended) {
                next = find();
                ended = next == null;
            }
            return next != null;
        }

        public Object next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            Object row = next;
            next = null;
            return row;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }

        private Object find() {
            if (owed) {
                owed = false;
                return behind;
            }
            Object row = reader.queue.poll();
            if (waiting > 0) {
                if (row == null) {
                    row = await(Math.min(idleNs, lingerNs - (System.nanoTime() - sinceNs)));
                }
                if (row == null) {
                    return flush();
                }
            } else if (row == null) {
                row = await(Long.MAX_VALUE);
            }
            if (row == END) {
                reader.raise();
                return null;
            }
            if (waiting == 0) {
                sinceNs = System.nanoTime();
            }
            waiting = waiting + 1;
            return row;
        }

        private Object flush() {
            waiting = 0;
            owed = true;
            return full;
        }

        private Object await(long ns) {
            try {
                return reader.queue.poll(ns, TimeUnit.NANOSECONDS);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
                throw new RuntimeException(ended);
            }
        }
    }
}
