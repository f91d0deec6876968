import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/** Encrypts and decrypts with Apache Kafka 3.9's class: arguments "encode SECRET CIPHER LENGTH PASSWORD" or "decode SECRET CIPHER TEXT". */
public class PasswordEncoders {
    public static void main(String[] arguments) throws Exception {
        for (int at = 0; at < arguments.length; ) {
            Password secret = new Password(arguments[at + 1]);
            if (arguments[at].equals("encode")) {
                int length = Integer.parseInt(arguments[at + 3]);
                PasswordEncoder encoder = PasswordEncoder.encrypting(secret, null, arguments[at + 2], length, 1024);
                System.out.println(encoder.encode(new Password(arguments[at + 4])));
                at += 5;
            } else {
                PasswordEncoder encoder =
                    PasswordEncoder.encrypting(secret, null, arguments[at + 2], 128, 1024);
                System.out.println(encoder.decode(arguments[at + 3]).value());
                at += 4;
            }
        }
    }
}
