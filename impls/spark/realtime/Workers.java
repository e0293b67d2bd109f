package rescale;

import java.io.IOException;

/** A router's connections to workers, each made when the first blob for its worker is sent. */
class Workers {
    private final String address;
    private final byte[] key;
    private final Link[] links;

    /**
     * @param address of the workers, without their slots; impls/spark/realtime/settings.py says where they listen
     * @param key by which driver and tasks know each other
     * @param slots most workers there can be
     */
    Workers(String address, byte[] key, int slots) {
        this.address = address;
        this.key = key;
        this.links = new Link[slots];
    }

    /** Sends a blob, also one that has to wait for a worker to read; throws IllegalStateException when that is gone. */
    void send(int slot, byte[] blob) throws Exception {
        if (links[slot] == null) {
            links[slot] = new Link("Worker " + slot, address + slot, key);
        }
        try {
            links[slot].send(blob);
        } catch (IOException error) {
            throw new IllegalStateException("Worker " + slot + " is gone: " + error.getMessage());
        }
    }

    /** Ends the connections. */
    void close() {
        for (int slot = 0; slot < links.length; slot++) {
            if (links[slot] != null) {
                links[slot].close();
            }
        }
    }
}
