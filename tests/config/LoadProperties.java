import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.Scanner;
import java.util.TreeMap;

/** Reads properties texts, one per line in Base64; prints key and value of each, or "error", in Base64. */
public class LoadProperties {
    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String text = new String(Base64.getDecoder().decode(lines.nextLine()), StandardCharsets.UTF_8);
            StringBuilder out = new StringBuilder();
            try {
                Properties properties = new Properties();
                properties.load(new StringReader(text));
                for (var entry : new TreeMap<>(properties).entrySet()) {
                    out.append(encode(entry.getKey())).append(':').append(encode(entry.getValue())).append(' ');
                }
            } catch (IllegalArgumentException error) {
                out.append("error");
            }
            System.out.println(out);
        }
    }

    private static String encode(Object text) {
        return Base64.getEncoder().encodeToString(text.toString().getBytes(StandardCharsets.UTF_8));
    }
}
