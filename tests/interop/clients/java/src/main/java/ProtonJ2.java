import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;

/**
 * An application on protonj2, whose own reconnect tries the members in turn.  It follows no redirect: it takes
 * one for a lost connection, and tries the next member.  The application sends again, in order, what had no
 * outcome at a loss.
 *
 *     ProtonJ2 send    MEMBERS QUEUE PRODUCER RATE WINDOW
 *     ProtonJ2 receive MEMBERS QUEUE
 *
 * A user, a password or token, and the SASL mechanism come in the environment: CLIENT_USER, CLIENT_PASSWORD,
 * CLIENT_MECHANISM.
 */
public final class ProtonJ2 {
    private static final AtomicInteger link = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        History.watchInput();
        try (Client client = Client.create(); Connection connection = connect(client, arguments[1])) {
            if (arguments[0].equals("send")) {
                Sender sender = connection.openSender(arguments[2]);
                int rate = Integer.parseInt(arguments[4]);
                new Sending(sender, arguments[3], rate, Integer.parseInt(arguments[5])).run();
            } else {
                receive(connection.openReceiver(arguments[2]));
            }
        }
    }

    private static Connection connect(Client client, String argument) throws ClientException {
        ConnectionOptions options = new ConnectionOptions();
        options.user(System.getenv("CLIENT_USER")).password(System.getenv("CLIENT_PASSWORD"));
        if (System.getenv("CLIENT_MECHANISM") != null) {
            options.saslOptions().addAllowedMechanism(System.getenv("CLIENT_MECHANISM"));
        }
        options.reconnectEnabled(true);
        options.reconnectOptions().maxReconnectDelay(250);
        List<String> members = History.members(argument);
        for (String member : members.subList(1, members.size())) {
            options.reconnectOptions().addReconnectLocation(host(member), port(member));
        }
        options.connectedHandler((connection, event) -> say("connected", event.host(), event.port()));
        options.reconnectedHandler((connection, event) -> say("connected", event.host(), event.port()));
        options.interruptedHandler((connection, event) -> {
            link.incrementAndGet();
            say("lost", event.host(), event.port());
        });
        String first = members.get(0);
        return client.connect(host(first), port(first), options);
    }

    private static void say(String what, String host, int port) {
        History.say("%s %s:%d", what, host, port);
    }

    private static String host(String member) {
        return member.substring(0, member.lastIndexOf(':'));
    }

    private static int port(String member) {
        return Integer.parseInt(member.substring(member.lastIndexOf(':') + 1));
    }

    private static void receive(Receiver receiver) throws ClientException {
        while (!History.stopping()) {
            Delivery delivery = receiver.receive(100, TimeUnit.MILLISECONDS);
            if (delivery != null) {
                Message<String> message = delivery.message();
                History.say("received %d %d %s", link.get(), message.deliveryCount(), message.body());
                try {
                    delivery.accept();
                } catch (ClientException error) {
                    rethrowUnlessLost(error);
                }
            }
        }
    }

    /** A call may meet a connection that is lost, before the client's reconnect takes notice. */
    private static void rethrowUnlessLost(ClientException error) throws ClientException {
        System.err.println(error);
        if (!(error.getCause() instanceof IOException || error.getCause() instanceof UncheckedIOException)) {
            throw error;
        }
    }

    private record Pending(int number, Future<Tracker> outcome) {
    }

    private static final class Sending {
        private final Sender sender;
        private final String producer;
        private final int window;
        private final long period;
        private final Deque<Pending> pending = new ArrayDeque<>();
        /** Those to send, in order: again, or for the first time. */
        private final Deque<Integer> due = new ArrayDeque<>();

        Sending(Sender sender, String producer, int rate, int window) {
            this.sender = sender;
            this.producer = producer;
            this.window = window;
            this.period = TimeUnit.SECONDS.toNanos(1) / rate;
        }

        void run() throws Exception {
            int next = 0;
            while (!(History.stopping() && pending.isEmpty() && due.isEmpty())) {
                settle();
                if (due.isEmpty() && pending.size() < window && !History.stopping()) {
                    History.say("sent %d", next);
                    due.add(next++);
                }
                if (!due.isEmpty()) {
                    send();
                }
                TimeUnit.NANOSECONDS.sleep(period);
            }
        }

        /** Does not wait for credit: after a loss, those without an outcome are sent before this one. */
        private void send() throws ClientException {
            try {
                Tracker tracker = sender.trySend(message(due.element()));
                if (tracker != null) {
                    pending.add(new Pending(due.remove(), tracker.settlementFuture()));
                }
            } catch (ClientException error) {
                rethrowUnlessLost(error);
            }
        }

        private Message<String> message(int number) throws ClientException {
            Message<String> message = Message.create(History.body(producer, number));
            message.durable(true);
            message.property("_AMQ_DUPL_ID", producer + "-" + number);
            return message;
        }

        /** Notes the outcomes that are known; after a loss, all that have none are due again, in order. */
        private void settle() throws InterruptedException {
            while (!pending.isEmpty() && pending.element().outcome().isDone()) {
                Pending oldest = pending.element();
                try {
                    DeliveryState.Type state = oldest.outcome().get().remoteState().getType();
                    boolean accepted = state == DeliveryState.Type.ACCEPTED;
                    History.say("%s %d", accepted ? "accepted" : "refused", oldest.number());
                    pending.remove();
                } catch (ExecutionException error) {
                    System.err.println(error.getCause());
                    while (!pending.isEmpty()) {
                        due.addFirst(pending.removeLast().number());
                    }
                }
            }
        }
    }
}
