import com.sun.management.OperatingSystemMXBean;
import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Sends pipelined with Qpid JMS and prints what it took, for bench_clients.py:
 *
 *     Send HOST:PORT ADDRESS COUNT WARM WINDOW SIZE durable|not-durable
 *
 * WARM messages go first and are not counted.  At most WINDOW messages have no outcome; each has its own
 * completion.  One line of JSON: seconds by the clock and of processor time, of all threads.
 */
public final class Send {
    private final Session session;
    private final MessageProducer producer;
    private final byte[] body;
    private final int window;
    private final Semaphore room;

    private Send(Connection connection, String address, int size, int window) throws Exception {
        session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        producer = session.createProducer(session.createQueue(address));
        body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        this.window = window;
        room = new Semaphore(window);
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        int warm = Integer.parseInt(arguments[3]);
        int window = Integer.parseInt(arguments[4]);
        int size = Integer.parseInt(arguments[5]);
        boolean durable = arguments[6].equals("durable");
        try (Connection connection = new JmsConnectionFactory("amqp://" + arguments[0]).createConnection()) {
            Send sender = new Send(connection, arguments[1], size, window);
            sender.producer.setDeliveryMode(durable ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
            sender.send(warm);
            long wall = System.nanoTime();
            long cpu = processorTime();
            sender.send(count);
            System.out.printf("{\"wall\": %f, \"cpu\": %f}%n", (System.nanoTime() - wall) / 1e9,
                (processorTime() - cpu) / 1e9);
        }
    }

    private void send(int count) throws Exception {
        for (int sent = 0; sent < count; sent++) {
            room.acquire();
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(body);
            producer.send(message, new Completion());
        }
        room.acquire(window);
        room.release(window);
    }

    private static long processorTime() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private final class Completion implements CompletionListener {
        @Override
        public void onCompletion(Message message) {
            room.release();
        }

        @Override
        public void onException(Message message, Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }
}
