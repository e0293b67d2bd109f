package rescale;

import java.io.EOFException;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * A router's connection to the driver's switchboard or to a worker: say and send from any thread, hear from one.
 *
 * The driver and a router say JSON. Both sides prove that they know the query's key in the way of Python's
 * multiprocessing.connection: each answers a challenge of the other with its HMAC, which is MD5's before Python 3.12. A
 * message has its length in front of it.
 */
public class Link {
    private static final String CHALLENGE = "#CHALLENGE#";
    private static final String WELCOME = "#WELCOME#";
    private static final String DIGEST = "{sha256}";
    private static final int OLD_BYTES = 20;  // of a challenge before Python 3.12
    private static final int OLD_DIGEST_BYTES = 16;
    private static final int RANDOM_BYTES = 40;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String who;
    private final SocketChannel channel;

    /** Connects to whoever listens at an address, such as "The driver"; IllegalStateException when that is gone. */
    public Link(String who, String address, byte[] key) throws Exception {
        this.who = who;
        try {
            channel = SocketChannel.open(UnixDomainSocketAddress.of(address));
        } catch (IOException error) {
            throw new IllegalStateException(who + " at " + address + " is gone: " + error.getMessage());
        }
        try {
            answer(key);
            challenge(key);
        } catch (IOException error) {
            close();
            throw new IllegalStateException(who + " is gone: " + error.getMessage());
        } catch (Exception error) {
            close();
            throw error;
        }
    }

    private void answer(byte[] key) throws Exception {
        byte[] asked = receive();
        byte[] message = Arrays.copyOfRange(asked, CHALLENGE.length(), asked.length);
        send(message.length == OLD_BYTES ? hmac("HmacMD5", key, message) : named(hmac("HmacSHA256", key, message)));
        if (!Arrays.equals(receive(), ascii(WELCOME))) {
            throw new IllegalStateException(who + " has another key.");
        }
    }

    private void challenge(byte[] key) throws Exception {
        byte[] random = new byte[RANDOM_BYTES];
        new SecureRandom().nextBytes(random);
        byte[] message = named(random);
        send(join(ascii(CHALLENGE), message));
        byte[] answer = receive();
        boolean old = answer.length == OLD_DIGEST_BYTES;
        byte[] expected = old ? hmac("HmacMD5", key, message) : named(hmac("HmacSHA256", key, message));
        if (!MessageDigest.isEqual(answer, expected)) {
            throw new IllegalStateException("Who listens at the address of a task does not know the query's key.");
        }
        send(ascii(WELCOME));
    }

    /** Sends a message; throws IOException when the driver is gone. */
    public void say(String json) throws IOException {
        send(json.getBytes(StandardCharsets.UTF_8));
    }

    /** Tells the driver with what a router fails; nothing when it is gone. */
    public void fail(int router, Throwable thrown) {
        Map said = new HashMap();
        said.put("type", "Failed");
        said.put("index", Integer.valueOf(router));
        said.put("kind", thrown instanceof IllegalStateException ? Wire.STATE_ERROR : thrown.getClass().getSimpleName());
        said.put("text", String.valueOf(thrown.getMessage()));
        try {
            say(JSON.writeValueAsString(said));
        } catch (IOException gone) {
            return;
        }
    }

    /** Waits for the driver's next message; throws IOException when it is gone or close was called. */
    public JsonNode hear() throws IOException {
        return JSON.readTree(receive());
    }

    /** Ends the connection; a thread that hears gets an IOException. */
    public void close() {
        try {
            channel.close();
        } catch (IOException ended) {
            return;
        }
    }

    /** Sends bytes as one message; throws IOException when who listens is gone. */
    public synchronized void send(byte[] bytes) throws IOException {
        ByteBuffer message = ByteBuffer.allocate(4 + bytes.length);
        message.putInt(bytes.length).put(bytes).flip();
        while (message.hasRemaining()) {
            channel.write(message);
        }
    }

    private byte[] receive() throws IOException {
        return read(ByteBuffer.wrap(read(4)).getInt());
    }

    private byte[] read(int bytes) throws IOException {
        ByteBuffer read = ByteBuffer.allocate(bytes);
        while (read.hasRemaining()) {
            if (channel.read(read) < 0) {
                throw new EOFException("it has ended the connection");
            }
        }
        return read.array();
    }

    private static byte[] hmac(String algorithm, byte[] key, byte[] message) throws Exception {
        Mac mac = Mac.getInstance(algorithm);
        mac.init(new SecretKeySpec(key, algorithm));
        return mac.doFinal(message);
    }

    private static byte[] named(byte[] bytes) {
        return join(ascii(DIGEST), bytes);
    }

    private static byte[] join(byte[] first, byte[] second) {
        byte[] both = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, both, first.length, second.length);
        return both;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
