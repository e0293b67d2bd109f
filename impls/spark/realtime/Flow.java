package rescale;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;

/** A router's side of the file by which routers and workers share how far they are, see impls/realtime/flow.py. */
public class Flow {
    private final LongBuffer cells;
    private final int slots;
    private final int columns;
    private final int source;

    public Flow(String path, int slots, int source) throws IOException {
        RandomAccessFile file = new RandomAccessFile(path, "rw");
        try {
            FileChannel channel = file.getChannel();
            this.cells = channel.map(FileChannel.MapMode.READ_WRITE, 0L, channel.size())
                .order(ByteOrder.nativeOrder()).asLongBuffer();
        } finally {
            file.close();
        }
        this.slots = slots;
        this.columns = cells.capacity() / slots;
        this.source = source;
    }

    /** Returns how many records each slot may be given now; none where that is not above 0. */
    public long[] room() {
        long[] room = new long[slots];
        for (int slot = 0; slot < slots; slot++) {
            int row = slot * columns;
            long left = cells.get(row + Wire.WINDOW) + cells.get(row + Wire.APPLIED);
            for (int column = Wire.SENT; column < columns; column++) {
                left = left - cells.get(row + column);
            }
            room[slot] = left;
        }
        return room;
    }

    /** Counts records that this router sends to each slot; a router without a column of its own is not counted. */
    public void sent(long[] records) {
        if (Wire.SENT + source >= columns) {
            return;
        }
        for (int slot = 0; slot < slots; slot++) {
            int cell = slot * columns + Wire.SENT + source;
            cells.put(cell, cells.get(cell) + records[slot]);
        }
    }
}
