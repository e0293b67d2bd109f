package rescale;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.AbstractMap;
import java.util.Arrays;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Packs records into blobs by the routing in force; all methods may be called from any thread.
 *
 * A row's first three columns are its bin, its input partition and its offset; if its record can have several rows, the
 * column Wire.ROW gets its number among them. impls/realtime/wire.py says what a blob begins with. Written for Janino,
 * the compiler that Spark has: no lambdas, no generics.
 */
public class Packer {
    private final int source;
    private final ArrowWriter writer;
    private final int[] sent;
    private final int rowColumn;  // -1 where a record has one row only
    private final Map newest = new TreeMap();  // by input partition: the last offset, and the number of its last row
    private int[] routing;
    private boolean isLast;
    private long epoch;

    /**
     * @param source number of the router
     * @param slots most workers there can be
     * @param schema of a record, as JSON of Spark's
     */
    public Packer(int source, int slots, String schema) {
        this.source = source;
        this.sent = new int[slots];
        StructType columns = (StructType) DataType.fromJson(schema);
        this.writer = ArrowWriter.create(columns, "UTC", false, false);
        this.rowColumn = Arrays.asList(columns.fieldNames()).indexOf(Wire.ROW);
    }

    /** Waits, for a limited time, until all is packed up to [partition, offset] of those partitions that are packed here. */
    public synchronized void awaitUntil(JsonNode until, long mostMs) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(mostMs);
        for (long leftNs = end - System.nanoTime(); leftNs > 0L && isBefore(until); leftNs = end - System.nanoTime()) {
            TimeUnit.NANOSECONDS.timedWait(this, leftNs);
        }
    }

    private boolean isBefore(JsonNode until) {
        for (int place = 0; place < until.size(); place++) {
            JsonNode one = (JsonNode) until.get(place);
            long[] last = (long[]) newest.get(Long.valueOf(((JsonNode) one.get(0)).asLong()));
            if (last != null && last[0] + 1L < ((JsonNode) one.get(1)).asLong()) {
                return true;
            }
        }
        return false;
    }

    /**
     * Routes by an epoch's routing from the next blob on, and returns the marks: the message Routed, as JSON.
     *
     * @param isLast whether there is no next blob, as the query ends with the epoch
     */
    public synchronized String route(long epoch, int[] routing, boolean isLast) {
        int last = last(routing);
        if (last >= sent.length) {
            throw new IllegalStateException("The routing names worker " + last + ", but this query has "
                + sent.length + " slots.");
        }
        this.epoch = epoch;
        this.routing = routing;
        this.isLast = isLast;
        StringBuilder said = new StringBuilder("{\"type\": \"Routed\", \"epoch\": ").append(epoch);
        said.append(", \"sent\": ").append(Arrays.toString(sent)).append(", \"next\": [");
        String between = "";
        for (Iterator entries = newest.entrySet().iterator(); entries.hasNext();) {
            Map.Entry entry = (Map.Entry) entries.next();
            long behind = ((long[]) entry.getValue())[0] + (rowColumn < 0 ? 1L : 0L);  // further rows may come of it
            said.append(between).append("[").append(entry.getKey()).append(", ").append(behind).append("]");
            between = ", ";
        }
        return said.append("]}").toString();
    }

    private static int last(int[] routing) {
        int found = -1;
        for (int bin = 0; bin < routing.length; bin++) {
            found = Math.max(found, routing[bin]);
        }
        return found;
    }

    /**
     * Packs records until one comes for whose slot there is no room, and returns how many it has taken.
     *
     * @param records InternalRows; those without a bin are taken and left out, but for their places in the input
     * @param from the first of them to take
     * @param room how many records each slot may be given; it is reduced by those that are packed
     * @param cameUs when the records came, for the header; so is packedUs, when they are packed
     * @param out gets an entry for each slot that has records: (slot, blob)
     */
    public synchronized int pack(List records, int from, long[] room, long cameUs, long packedUs, Collection out)
        throws Exception {
        if (routing == null) {
            throw new IllegalStateException("Records came before the first routing.");
        }
        if (isLast) {
            return 0;
        }
        int[] to = new int[records.size() - from];
        int[] counts = new int[sent.length];
        int taken = admit(records, from, room, to, counts);
        for (int slot = 0; slot < counts.length; slot++) {
            if (counts[slot] == 0) {
                continue;
            }
            for (int place = 0; place < taken; place++) {
                if (to[place] == slot) {
                    writer.write((InternalRow) records.get(from + place));
                }
            }
            sent[slot] = sent[slot] + 1;
            out.add(new AbstractMap.SimpleEntry(Integer.valueOf(slot), blob(slot, cameUs, packedUs)));
        }
        notifyAll();  // who awaits
        return taken;
    }

    private int admit(List records, int from, long[] room, int[] to, int[] counts) {
        for (int place = 0; place < to.length; place++) {
            InternalRow record = (InternalRow) records.get(from + place);
            if (record.isNullAt(Wire.BIN)) {
                to[place] = -1;
                note(record);
                continue;
            }
            int slot = routing[record.getInt(Wire.BIN)];
            if (room[slot] <= 0) {
                return place;
            }
            room[slot] = room[slot] - 1;
            counts[slot] = counts[slot] + 1;
            to[place] = slot;
            number((UnsafeRow) record);
        }
        return to.length;
    }

    /** Notes a row as the last of its input partition, and gives it its number among those of its record. */
    private void number(UnsafeRow row) {
        long[] last = note(row);
        if (last != null) {
            last[1] = last[1] + 1L;
            if (rowColumn >= 0) {
                row.setLong(rowColumn, last[1]);
            }
        }
    }

    /** Returns the last place of a row's input partition, which is now its own: offset, number of the last row there. */
    private long[] note(InternalRow row) {
        if (row.isNullAt(Wire.PARTITION) || row.isNullAt(Wire.OFFSET)) {
            return null;  // the user's own columns; the worker names the record
        }
        Long partition = Long.valueOf(row.getLong(Wire.PARTITION));
        long offset = row.getLong(Wire.OFFSET);
        long[] last = (long[]) newest.get(partition);
        if (last == null) {
            last = new long[] {-1L, -1L};
            newest.put(partition, last);
        }
        if (offset < last[0] || (offset == last[0] && rowColumn < 0)) {
            throw new IllegalStateException("Input partition " + partition + " has offset " + offset + " behind offset "
                + last[0] + ": offsets must grow within a partition. Was its topic made anew?");
        }
        if (offset > last[0]) {
            last[0] = offset;
            last[1] = -1L;
        }
        return last;
    }

    /** Returns how many blobs have been packed for each slot. */
    public synchronized int[] sent() {
        return (int[]) sent.clone();
    }

    private byte[] blob(int slot, long cameUs, long packedUs) throws Exception {
        writer.finish();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.write(new byte[Wire.HEADER_BYTES], 0, Wire.HEADER_BYTES);
        ArrowRecordBatch batch = new VectorUnloader(writer.root()).getRecordBatch();
        try {
            MessageSerializer.serialize(new WriteChannel(Channels.newChannel(bytes)), batch);
        } finally {
            batch.close();
        }
        writer.reset();
        byte[] blob = bytes.toByteArray();
        ByteBuffer header = ByteBuffer.wrap(blob).order(ByteOrder.LITTLE_ENDIAN);
        header.put(Wire.MAGIC.getBytes(StandardCharsets.US_ASCII)).putInt(blob.length - Wire.HEADER_BYTES).putInt(source).putInt(0);
        header.putLong((long) sent[slot]).putLong(epoch).putLong(cameUs).putLong(packedUs);
        return blob;
    }

    /** Frees the memory of Arrow's columns. */
    public synchronized void close() {
        writer.root().close();
    }
}
