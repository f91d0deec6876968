import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command line tools one after another, because each start of a JVM costs seconds.
 *
 * Takes one command a line, main class and arguments as base64 words, and answers each with a line: the exit code, and
 * what the tool printed on its two streams in base64 ("-" for nothing). See support/kafka_tools.py.
 */
public final class KafkaTools {
    static final class Ended extends Error {
        final int code;

        Ended(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        org.slf4j.LoggerFactory.getLogger("tools"); // says now that there is nobody to log to
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Ended(code); });
        for (String line; (line = commands.readLine()) != null; ) {
            List<String> words = new ArrayList<>();
            for (String word : line.split(" "))
                words.add(word.equals("-") ? "" : new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8));
            ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(words.remove(0), words.toArray(new String[0]));
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + encoded(out) + " " + encoded(err));
            answers.flush();
        }
    }

    static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (java.lang.reflect.InvocationTargetException problem) {
            if (problem.getCause() instanceof Ended) return ((Ended) problem.getCause()).code;
            // Some tools catch everything around their own exit.
            problem.getCause().printStackTrace();
            return 1;
        }
    }

    static String encoded(ByteArrayOutputStream bytes) {
        return bytes.size() == 0 ? "-" : Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
