import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;

/** Prints the RFC 2253 text of each name in the file: one encoded name in Base64 per line, in and out. */
public class X500Names {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String name = new X500Principal(Base64.getDecoder().decode(line)).getName();
            System.out.println(Base64.getEncoder().encodeToString(name.getBytes("UTF-8")));
        }
    }
}
