"""Each client on a secured broker, by each mechanism that it has: records written and read, a wrong secret refused.

Rules allow each user the topics and the group of its mechanism by the name of its principal, and all else is denied.
"""

from __future__ import annotations

import gc
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.serialization import Encoding

from tests.compat import secured_clients as clients
from tests.compat.secured_clients import OAUTHBEARER, PLAIN, SCRAM_256, SCRAM_512, TLS, TOKEN, Case
from tests.support.certificates import Certificates, Identity, trust_store
from tests.support.kafka_tools import KafkaTools
from tests.support.secured_broker import SecuredBroker, signed_token

# kafka-python may leave a socket to the garbage collector.
LEAKS = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.compat, pytest.mark.very_slow, pytest.mark.filterwarnings(LEAKS)]

WAIT_S = 60.0
TOKEN_COMMAND = "org.apache.kafka.tools.DelegationTokenCommand"
ALL = (TLS, PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)
OLD = (TLS, PLAIN, SCRAM_256, SCRAM_512)
USERS = {
    TLS: "CN=alice,O=Tests",
    PLAIN: "paul",
    SCRAM_256: "sara",
    SCRAM_512: "simon",
    OAUTHBEARER: "olga",
    TOKEN: "simon",
}
"""The principals. A delegation token acts for its owner."""
PASSWORDS = {"broker": "not-for-any-log-1", "paul": "not-for-any-log-2"}
SECRETS = {PLAIN: PASSWORDS["paul"], SCRAM_256: "not-for-any-log-3", SCRAM_512: "not-for-any-log-4"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "not-for-any-log-5",
    "log.cleaner.enable": "false",
}
MECHANISMS = {
    "java-4.3.1": (*ALL, TOKEN),
    "java-2.8.2": (*OLD, TOKEN),
    "java-0.10.2.2": OLD,
    "librdkafka": ALL,
    "kafka-python": ALL,
    "aiokafka": ALL,
    "franz-go": (*ALL, TOKEN),
    "sarama": ALL,
    "kafkajs": ALL,
}
RUNNERS: dict[str, Callable[[list[Case], pathlib.Path], dict[str, str]]] = {
    "java-4.3.1": clients.java("4.3.1"),
    "java-2.8.2": clients.java("2.8.2"),
    "java-0.10.2.2": clients.java("0.10.2.2"),
    "librdkafka": clients.librdkafka,
    "kafka-python": clients.kafka_python,
    "aiokafka": clients.aiokafka_client,
    "franz-go": clients.franz_go,
    "sarama": clients.sarama,
    "kafkajs": clients.kafkajs,
}
INVALID = (
    "Authentication failed: Invalid username or password"
    "|Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-"
)
NO_CA = "unknown.ca|unknown certificate authority|broken pipe|reset by peer"
"""In TLS 1.3 the refusal comes behind the client's handshake, and may meet its first request."""
REFUSALS = {
    "java-4.3.1": {"": f"SaslAuthenticationException: ({INVALID})", TLS: f"SslAuthenticationException.*{NO_CA}"},
    "java-2.8.2": {"": f"SaslAuthenticationException: ({INVALID})", TLS: f"SslAuthenticationException.*{NO_CA}"},
    # It has no such error: Java's clients have one from 1.0 on.
    "java-0.10.2.2": {"": "TimeoutException", TLS: "TimeoutException"},
    "librdkafka": {"": f"code=_AUTHENTICATION.*({INVALID})", TLS: NO_CA},
    # It loses a response that it receives together with the end of the connection.
    "kafka-python": {"": f"SaslAuthenticationFailed.*({INVALID})|socket disconnected", TLS: NO_CA},
    "aiokafka": {"": INVALID, TLS: "Unable to bootstrap.*closed"},
    "franz-go": {"": f"SASL_AUTHENTICATION_FAILED.*({INVALID})", TLS: NO_CA},
    "sarama": {"": f"SASL Authentication failed: ({INVALID})", TLS: NO_CA},
    "kafkajs": {"": f"KafkaJSSASLAuthenticationError: .*({INVALID})", TLS: NO_CA},
}
"""The client's own error for a wrong secret, by mechanism, or of all other mechanisms."""
REFUSED_TOKENS = {
    "java-4.3.1": 'SaslAuthenticationException: .*"invalid_token"',
    "librdkafka": 'code=_AUTHENTICATION.*"invalid_token"',
    "kafka-python": "SaslAuthenticationFailed|socket disconnected",
    "aiokafka": "Unable to bootstrap.*closed",  # as kafkajs
    "franz-go": "unexpected data in oauth response",  # that it is the error of RFC 7628 it does not know
    "sarama": "SASL Authentication failed",
    "kafkajs": "Closed connection",  # it begins to send requests, and does not read the response
}
PAIRS = [
    pytest.param(client, mechanism, marks=[pytest.mark.jvm] if client.startswith("java") else [])
    for client, mechanisms in MECHANISMS.items()
    for mechanism in mechanisms
]


@pytest.fixture(scope="module", autouse=True)
def _leaks_stay_here() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), certificates, PASSWORDS, SETTINGS) as broker:
        for mechanism in (SCRAM_256, SCRAM_512):
            broker.add_scram_user(USERS[mechanism], {mechanism: SECRETS[mechanism]})
        broker.add_topics(topic_of(client, mechanism) for client, found in MECHANISMS.items() for mechanism in found)
        for mechanism, user in USERS.items():
            broker.allow(user, f"{mechanism}.")
        yield broker


def topic_of(client: str, mechanism: str) -> str:
    return f"{mechanism}.{client}"


@pytest.fixture(scope="module")
def token(
    secured: SecuredBroker, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A delegation token that kafka-delegation-tokens made for the user of SCRAM-SHA-512: its id and its HMAC."""
    folder = tmp_path_factory.mktemp("token")
    owner = case_of("owner", SCRAM_512, secured, certificates, folder, SECRETS[SCRAM_512])
    file = folder / "owner.properties"
    file.write_text(clients.properties_text(clients.java_settings(owner, folder)))
    place = ("--bootstrap-server", owner.bootstrap, "--command-config", str(file))
    with KafkaTools() as tools:
        said = tools.run(TOKEN_COMMAND, *place, "--create", "--max-life-time-period", "-1")
    assert said.code == 0, said
    line = next(line for line in said.out.splitlines() if f"User:{USERS[TOKEN]}" in line)
    return line.split()[0], line.split()[1]


def case_of(
    client: str,
    mechanism: str,
    broker: SecuredBroker,
    certificates: Certificates,
    folder: pathlib.Path,
    secret: str,
    user: str = "",
    *,
    refused: bool = False,
) -> Case:
    """Return the case of a client with its files; of TLS, `secret` is whose certificate it presents."""
    trusted = folder / "ca.jks"
    trusted.write_bytes(trust_store(certificates.authority.certificate.public_bytes(Encoding.DER)))
    identity = store = ""
    if mechanism == TLS:
        who: Identity = getattr(certificates, secret)
        (folder / f"{secret}.pem").write_text(who.pem)
        (folder / f"{secret}.p12").write_bytes(who.pkcs12())
        identity, store = str(folder / f"{secret}.pem"), str(folder / f"{secret}.p12")
    return Case(
        name=f"{mechanism}-{'refused' if refused else 'served'}",
        mechanism=mechanism,
        bootstrap=broker.address("SSL" if mechanism == TLS else "SASL_SSL"),
        topic=topic_of(client, mechanism),
        user=user or USERS[mechanism],
        secret=secret,
        authority=certificates.ca_file,
        trust_store=str(trusted),
        identity=identity,
        store=store,
        refused=refused,
    )


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest,
    secured: SecuredBroker,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], dict[str, str]]:
    """Return a function that runs all cases of a client, once, and returns their results."""
    said: dict[str, dict[str, str]] = {}

    def run(client: str) -> dict[str, str]:
        if client not in said:
            folder = tmp_path_factory.mktemp("client")
            secrets = {**SECRETS, TLS: "alice", OAUTHBEARER: signed_token(USERS[OAUTHBEARER])}
            wrong = dict.fromkeys(SECRETS, "wrong") | {TLS: "stranger", OAUTHBEARER: signed_token("olga", audience="x")}
            cases = []
            for mechanism in MECHANISMS[client]:
                user = ""
                if mechanism == TOKEN:
                    user, secrets[TOKEN] = request.getfixturevalue("token")
                    wrong[TOKEN] = "wrong"
                for chosen in (secrets, wrong):
                    cases.append(
                        case_of(
                            client,
                            mechanism,
                            secured,
                            certificates,
                            folder,
                            chosen[mechanism],
                            user,
                            refused=chosen is wrong,
                        )
                    )
            said[client] = RUNNERS[client](cases, folder)
        return said[client]

    return run


@pytest.mark.parametrize(("client", "mechanism"), PAIRS)
def test_records_are_written_and_read(results: Callable[[str], dict[str, str]], client: str, mechanism: str) -> None:
    found = results(client)
    assert found.get(f"{mechanism}-served", found[""]) == "PASS"


@pytest.mark.parametrize(("client", "mechanism"), PAIRS)
def test_wrong_secret_is_refused_with_the_clients_own_error(
    results: Callable[[str], dict[str, str]], client: str, mechanism: str
) -> None:
    found = results(client)
    said = found.get(f"{mechanism}-refused", found[""])
    wanted = REFUSALS[client]
    pattern = REFUSED_TOKENS[client] if mechanism == OAUTHBEARER else wanted.get(mechanism, wanted[""])
    assert re.search(pattern, said), said


def test_rules_are_by_name(secured: SecuredBroker, certificates: Certificates) -> None:
    """The topics of one user are denied to another one."""
    other = {
        "bootstrap.servers": secured.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca_file,
        "sasl.mechanism": PLAIN,
        "sasl.username": USERS[PLAIN],
        "sasl.password": SECRETS[PLAIN],
        "log_level": 0,
    }
    failed: list[str] = []
    producer = Producer(other)
    topic = topic_of("librdkafka", SCRAM_256)
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error.name()))
    assert producer.flush(WAIT_S) == 0
    assert failed == ["TOPIC_AUTHORIZATION_FAILED"]
    denial = (
        f"Principal = User:{USERS[PLAIN]} is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = Topic:"
    )
    assert f"{denial}LITERAL:{topic} for request = Metadata" in secured.log()


def test_broker_logs_the_reasons_and_no_secret(
    results: Callable[[str], dict[str, str]], secured: SecuredBroker
) -> None:
    """For 0.10.2, whose own error has none, too."""
    results("java-0.10.2.2")
    log = secured.log()
    for mechanism in (PLAIN, SCRAM_256, SCRAM_512):
        assert f"(SASL/{mechanism}): the user '{USERS[mechanism]}' is unknown or the password is wrong" in log
    assert "to the listener SSL: the TLS handshake failed: the client's certificate is refused" in log
    assert [secret for secret in (*PASSWORDS.values(), *SECRETS.values()) if secret in log] == []
