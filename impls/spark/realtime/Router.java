package rescale;

import java.io.IOException;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Routes the records of one partition of the source until Spark's batch ends.
 *
 * Blobs go to the workers by connections of the router's own. Through Spark's shuffle goes, at the end, how many blobs
 * each worker has been sent; it may end when it has them.
 *
 * Three threads: one reads records, as their source cannot be asked to wait for a limited time only; one hears the
 * driver, and switches at once, also while no record comes or no worker has room, unless it is told for which records
 * to wait; the task's own packs.
 */
public class Router implements MapPartitionsFunction {
    private static final long serialVersionUID = 1L;
    private static final int PACKED_RECORDS_MAX = 4096;
    private static final long ROUTING_DEADLINE_S = 60L;
    private static final long SWITCH_WAIT_MS = 100L;
    private static final long FULL_MS = 2L;  // between two looks whether a worker has room again

    private final String address;
    private final byte[] key;
    private final String run;
    private final String flow;
    private final String schema;
    private final int slots;
    private final long idleNs;
    private final long lingerNs;

    /**
     * @param address of the driver's switchboard
     * @param key by which driver and tasks know each other
     * @param run random name of this start of the query
     * @param flow path of the file by which routers and workers share how far they are
     * @param schema of a record, as JSON of Spark's
     * @param slots most workers there can be
     * @param idleUs records are packed when no other has come for so long
     * @param lingerUs records are packed when the first of them has waited for so long
     */
    public Router(String address, byte[] key, String run, String flow, String schema, int slots, int idleUs,
                  int lingerUs) {
        this.address = address;
        this.key = key;
        this.run = run;
        this.flow = flow;
        this.schema = schema;
        this.slots = slots;
        this.idleNs = idleUs * 1000L;
        this.lingerNs = lingerUs * 1000L;
    }

    public Iterator call(Iterator records) throws Exception {
        TaskContext context = TaskContext.get();
        int index = context.partitionId();
        String property = context.getLocalProperty(Wire.BATCH_ID);
        String batch = property == null ? "0" : property;
        Link link = new Link("The driver", address, key);
        link.say("{\"type\": \"Hello\", \"index\": " + index + ", \"run\": \"" + run + "\", \"batch\": " + batch
            + ", \"stage\": " + context.stageId() + "}");
        try {
            String folder = address.substring(0, address.lastIndexOf('/'));
            Workers workers = new Workers(folder + "/" + Wire.WORKER_SOCKET + "-" + run + "-" + batch + "-", key, slots);
            Packer packer = new Packer(index, slots, schema);
            Reader reader = new Reader(records, context);
            Driver driver = new Driver(link, packer, reader);
            context.addTaskCompletionListener(new End(reader, link, workers, packer));
            driver.start();
            reader.start();
            return new Sending(this, link, workers, context, driver, new Flow(flow, slots, index));
        } catch (Exception error) {
            link.fail(index, error);
            link.close();
            throw error;
        }
    }

    /** Ends the threads with the task, and then frees what they use. */
    private static class End implements TaskCompletionListener {
        private final Reader reader;
        private final Link link;
        private final Workers workers;
        private final Packer packer;

        End(Reader reader, Link link, Workers workers, Packer packer) {
            this.reader = reader;
            this.link = link;
            this.workers = workers;
            this.packer = packer;
        }

        public void onTaskCompletion(TaskContext task) {
            reader.end();
            link.close();
            workers.close();
            packer.close();
        }
    }

    /** Hears the driver. */
    private static class Driver extends Thread {
        final CountDownLatch switched = new CountDownLatch(1);
        final Reader reader;
        final Packer packer;
        private final Link link;

        Driver(Link link, Packer packer, Reader reader) {
            super("rescale-router-hears");
            setDaemon(true);
            this.link = link;
            this.packer = packer;
            this.reader = reader;
        }

        public void run() {
            try {
                while (true) {
                    JsonNode route = link.hear();
                    JsonNode workers = (JsonNode) route.get("routing");
                    int[] routing = new int[workers.size()];
                    for (int bin = 0; bin < routing.length; bin++) {
                        routing[bin] = ((JsonNode) workers.get(bin)).asInt();
                    }
                    packer.awaitUntil((JsonNode) route.get("until"), SWITCH_WAIT_MS);
                    boolean last = ((JsonNode) route.get("last")).asBoolean();
                    link.say(packer.route(((JsonNode) route.get("epoch")).asLong(), routing, last));
                    switched.countDown();
                }
            } catch (Throwable thrown) {
                boolean gone = thrown instanceof IOException;
                reader.fail(gone ? new IllegalStateException("The driver has ended the connection.") : thrown);
            }
            switched.countDown();
        }
    }

    /** Sends all blobs before its first row; its rows are (slot, router, blobs) for Spark's shuffle. */
    private static class Sending implements Iterator {
        private final Router router;
        private final Link link;
        private final Workers workers;
        private final TaskContext context;
        private final Driver driver;
        private final Flow flow;
        private final ArrayDeque rows = new ArrayDeque();
        private final ArrayList blobs = new ArrayList();
        private final ArrayList records = new ArrayList();
        private int packed;  // of these records
        private long cameUs;
        private boolean ended;
        private boolean counted;

        Sending(Router router, Link link, Workers workers, TaskContext context, Driver driver, Flow flow) {
            this.router = router;
            this.link = link;
            this.workers = workers;
            this.context = context;
            this.driver = driver;
            this.flow = flow;
        }

        public boolean hasNext() {
            try {
                while (!ended || packed < records.size()) {
                    sendNext();
                }
                if (!counted) {
                    count();
                }
            } catch (RuntimeException thrown) {
                tell(thrown);
                throw thrown;
            } catch (Exception thrown) {
                tell(thrown);
                throw new RuntimeException(thrown);
            }
            return !rows.isEmpty();
        }

        public Object next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return rows.poll();
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }

        private void tell(Exception thrown) {
            if (!context.isInterrupted()) {  // else Spark ends the task, because of something that the driver knows
                link.fail(context.partitionId(), thrown);
            }
        }

        private void count() {
            counted = true;
            int[] sent = driver.packer.sent();
            for (int slot = 0; slot < sent.length; slot++) {
                Object[] values = new Object[3];
                values[0] = Integer.valueOf(slot);
                values[1] = Integer.valueOf(context.partitionId());
                values[2] = Integer.valueOf(sent[slot]);
                rows.add(RowFactory.create(values));
            }
        }

        /** Packs and sends the records for which there is room. */
        private void sendNext() throws Exception {
            if (!driver.switched.await(ROUTING_DEADLINE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("The driver sent no routing in " + ROUTING_DEADLINE_S + " s.");
            }
            if (packed == records.size()) {
                take();
            }
            driver.reader.raise();
            long[] given = flow.room();
            long[] room = (long[]) given.clone();
            int taken = driver.packer.pack(records, packed, room, cameUs, nowUs(), blobs);
            for (int slot = 0; slot < room.length; slot++) {
                given[slot] = given[slot] - room[slot];
            }
            flow.sent(given);
            packed = packed + taken;
            for (Iterator entries = blobs.iterator(); entries.hasNext();) {
                Map.Entry blob = (Map.Entry) entries.next();
                workers.send(((Integer) blob.getKey()).intValue(), (byte[]) blob.getValue());
            }
            blobs.clear();
            if (taken == 0 && packed < records.size()) {
                Thread.sleep(FULL_MS);
            }
        }

        /** Takes the records that come one behind the other; cameUs is when they have come, in the mean. */
        private void take() throws Exception {
            records.clear();
            packed = 0;
            records.add(driver.reader.queue.take());
            long sinceNs = System.nanoTime();
            long firstUs = nowUs();
            long laterUs = 0L;
            int before = 0;
            while (true) {
                driver.reader.queue.drainTo(records, PACKED_RECORDS_MAX - records.size());
                int came = records.size() - before;
                long passedNs = System.nanoTime() - sinceNs;
                laterUs = laterUs + came * passedNs / 1000L;
                ended = records.get(records.size() - 1) == Reader.END;
                long leftNs = Math.min(router.idleNs, router.lingerNs - passedNs);
                if (came == 0 || ended || records.size() >= PACKED_RECORDS_MAX || leftNs <= 0L) {
                    break;
                }
                before = records.size();
                LockSupport.parkNanos(leftNs);  // and not until the next record, as each would wake this thread
            }
            if (ended) {
                records.remove(records.size() - 1);
            }
            cameUs = firstUs + laterUs / Math.max(1, records.size());
        }

        private static long nowUs() {
            Instant now = Instant.now();
            return now.getEpochSecond() * 1000000L + now.getNano() / 1000L;
        }
    }
}
