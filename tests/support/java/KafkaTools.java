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
        Ended(int code) {
            super("exit " + code, null, false, false);
        }
    }

    /** Of the first exit a tool asks for: some catch what stands for the end of the JVM here, and ask once more. */
    static Integer code;
    static byte[] errorsThen;
    static ByteArrayOutputStream out, err;

    /** To where the present tool prints: Scala's println keeps the stream that it finds at first. */
    static PrintStream to(java.util.function.Supplier<OutputStream> present) {
        return new PrintStream(new OutputStream() {
            @Override public void write(int b) throws IOException { present.get().write(b); }
            @Override public void write(byte[] b, int from, int count) throws IOException {
                present.get().write(b, from, count);
            }
        }, true, StandardCharsets.UTF_8);
    }

    static void end(int wanted) {
        if (code == null) {
            System.err.flush();
            code = wanted;
            errorsThen = err.toByteArray();
        }
        throw new Ended(wanted);
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        out = err = new ByteArrayOutputStream();
        org.slf4j.LoggerFactory.getLogger("tools"); // says now that there is nobody to log to
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        Exit.setExitProcedure((wanted, message) -> end(wanted));
        Exit.setHaltProcedure((wanted, message) -> end(wanted));
        System.setOut(to(() -> out));
        System.setErr(to(() -> err));
        for (String line; (line = commands.readLine()) != null; ) {
            List<String> words = new ArrayList<>();
            for (String word : line.split(" "))
                words.add(word.equals("-") ? "" : new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8));
            out = new ByteArrayOutputStream();
            err = new ByteArrayOutputStream();
            code = null;
            int ended = run(words.remove(0), words.toArray(new String[0]));
            System.out.flush();
            System.err.flush();
            byte[] errors = code == null ? err.toByteArray() : errorsThen;
            answers.println((code == null ? ended : code) + " " + encoded(out.toByteArray()) + " " + encoded(errors));
            answers.flush();
        }
    }

    static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (java.lang.reflect.InvocationTargetException problem) {
            if (!(problem.getCause() instanceof Ended)) problem.getCause().printStackTrace();
            return 1;
        }
    }

    static String encoded(byte[] bytes) {
        return bytes.length == 0 ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
