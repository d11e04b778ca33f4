import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.net.URI;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.message.JmsInboundMessageDispatch;

/**
 * An application on Qpid JMS, which leaves the failover to it: it follows redirects and the announced list
 * of members, and a send that waits for its outcome returns after the failover.  (With a CompletionListener,
 * those under way fail with "Send failed due to connection loss".)  So WINDOW has no effect.
 *
 *     Jms send    MEMBERS QUEUE PRODUCER RATE WINDOW
 *     Jms receive MEMBERS QUEUE
 *
 * A user, a password or token, and the SASL mechanism come in the environment: CLIENT_USER, CLIENT_PASSWORD,
 * CLIENT_MECHANISM.
 */
public final class Jms {
    private static final AtomicInteger link = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        History.watchInput();
        String mechanism = System.getenv("CLIENT_MECHANISM");
        String options = mechanism == null ? "" : "?amqp.saslMechanisms=" + mechanism;
        String members = History.members(arguments[1]).stream()
            .map(member -> "amqp://" + member + options)
            .collect(Collectors.joining(","));
        String url = "failover:(" + members + ")?failover.maxReconnectDelay=250";
        Connection connection = new JmsConnectionFactory(url)
            .createConnection(System.getenv("CLIENT_USER"), System.getenv("CLIENT_PASSWORD"));
        ((JmsConnection) connection).addConnectionListener(new Listener());
        connection.start();
        if (arguments[0].equals("send")) {
            send(connection, arguments[2], arguments[3], Integer.parseInt(arguments[4]));
        } else {
            receive(connection, arguments[2]);
        }
        connection.close();
    }

    private static void send(Connection connection, String queue, String producer, int rate)
            throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer sender = session.createProducer(session.createQueue(queue));
        for (int number = 0; !History.stopping(); number++) {
            TextMessage message = session.createTextMessage(History.body(producer, number));
            message.setStringProperty("_AMQ_DUPL_ID", producer + "-" + number);
            History.say("sent %d", number);
            sender.send(message);
            History.say("accepted %d", number);
            TimeUnit.NANOSECONDS.sleep(TimeUnit.SECONDS.toNanos(1) / rate);
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
