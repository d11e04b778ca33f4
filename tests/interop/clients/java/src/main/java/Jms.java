import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.net.URI;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.message.JmsInboundMessageDispatch;

/**
 * An application on Qpid JMS, which leaves the failover to it: it follows redirects and the announced list
 * of members, and sends again what had no outcome.
 *
 *     Jms send    MEMBERS QUEUE PRODUCER RATE WINDOW
 *     Jms receive MEMBERS QUEUE
 */
public final class Jms {
    private static final AtomicInteger link = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        History.watchInput();
        String members = History.members(arguments[1]).stream()
            .map(member -> "amqp://" + member)
            .collect(Collectors.joining(","));
        String url = "failover:(" + members + ")?failover.maxReconnectDelay=250";
        Connection connection = new JmsConnectionFactory(url).createConnection();
        ((JmsConnection) connection).addConnectionListener(new Listener());
        connection.start();
        if (arguments[0].equals("send")) {
            send(connection, arguments[2], arguments[3], Integer.parseInt(arguments[4]),
                Integer.parseInt(arguments[5]));
        } else {
            receive(connection, arguments[2]);
        }
        connection.close();
    }

    private static void send(Connection connection, String queue, String producer, int rate, int window)
            throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer sender = session.createProducer(session.createQueue(queue));
        Semaphore room = new Semaphore(window);
        long due = System.nanoTime();
        for (int number = 0; !History.stopping(); number++) {
            room.acquire();
            TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
            due = Math.max(due, System.nanoTime() - TimeUnit.SECONDS.toNanos(1) / rate)
                + TimeUnit.SECONDS.toNanos(1) / rate;
            TextMessage message = session.createTextMessage(History.body(producer, number));
            message.setStringProperty("_AMQ_DUPL_ID", producer + "-" + number);
            History.say("sent %d", number);
            sender.send(message, new Outcome(number, room));
        }
        room.acquire(window);
    }

    private record Outcome(int number, Semaphore room) implements CompletionListener {
        @Override
        public void onCompletion(Message message) {
            History.say("accepted %d", number);
            room.release();
        }

        @Override
        public void onException(Message message, Exception error) {
            System.err.println(error);
            History.say("unknown %d", number);
            room.release();
        }
    }

    private static void receive(Connection connection, String name) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        MessageConsumer receiver = session.createConsumer(queue);
        while (!History.stopping()) {
            Message message = receiver.receive(100);
            if (message != null) {
                int count = message.getIntProperty("JMSXDeliveryCount") - 1;
                History.say("received %d %d %s", link.get(), count, ((TextMessage) message).getText());
                message.acknowledge();
            }
        }
    }

    private static final class Listener implements JmsConnectionListener {
        @Override
        public void onConnectionEstablished(URI member) {
            History.say("connected %s", member.getAuthority());
        }

        @Override
        public void onConnectionInterrupted(URI member) {
            link.incrementAndGet();
            History.say("lost %s", member.getAuthority());
        }

        @Override
        public void onConnectionRestored(URI member) {
            History.say("connected %s", member.getAuthority());
        }

        @Override
        public void onConnectionFailure(Throwable error) {
            error.printStackTrace();
        }

        @Override
        public void onInboundMessage(JmsInboundMessageDispatch envelope) {
        }

        @Override
        public void onSessionClosed(Session session, Throwable cause) {
            cause.printStackTrace();
        }

        @Override
        public void onConsumerClosed(MessageConsumer consumer, Throwable cause) {
            cause.printStackTrace();
        }

        @Override
        public void onProducerClosed(MessageProducer producer, Throwable cause) {
            cause.printStackTrace();
        }
    }
}
