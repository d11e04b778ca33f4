import java.io.IOException;
import java.util.List;

/** What a program prints, and the end that its standard input gives it. */
final class History {
    private static volatile boolean stopping;

    private History() {
    }

    /** One line, at once: the reader notes when it arrived. */
    static synchronized void say(String format, Object... facts) {
        System.out.println(String.format(format, facts));
        System.out.flush();
    }

    /** Whether standard input has ended. */
    static boolean stopping() {
        return stopping;
    }

    static void watchInput() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException error) {
                System.err.println(error);
            }
            stopping = true;
        }, "standard input");
        watcher.setDaemon(true);
        watcher.start();
    }

    static String body(String producer, int number) {
        String filling = Integer.toHexString(number) + ".";
        return producer + " " + number + " " + filling.length() + " " + filling;
    }

    static List<String> members(String argument) {
        return List.of(argument.split(","));
    }
}
