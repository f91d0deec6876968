"""Each client on a secured broker, by each mechanism that it has: records written and read, a wrong secret refused.

Rules allow each user the topics and the group of its mechanism by the name of its principal, and all else is denied.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
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
    "java-2.8.2": OLD,
    "java-0.10.2.2": OLD,
    "librdkafka": ALL,
    "kafka-python": ALL,
    "aiokafka": ALL,
    "franz-go": ALL,
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
REFUSALS = {
    "java-4.3.1": "SaslAuthenticationException",
}
"""What the client's own error says of a wrong secret."""
PAIRS = [
    pytest.param(client, mechanism, marks=[pytest.mark.jvm] if client.startswith("java") else [])
    for client, mechanisms in MECHANISMS.items()
    for mechanism in mechanisms
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), certificates, PASSWORDS, SETTINGS) as broker:
        for mechanism in (SCRAM_256, SCRAM_512):
            broker.add_scram_user(USERS[mechanism], {mechanism: SECRETS[mechanism]})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        names = [topic_of(client, mechanism) for client, found in MECHANISMS.items() for mechanism in found]
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(WAIT_S)
        rules = [
            AclBinding(
                kind,
                f"{mechanism}.",
                ResourcePatternType.PREFIXED,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for mechanism, user in USERS.items()
            for kind, operation in (
                (ResourceType.TOPIC, AclOperation.READ),
                (ResourceType.TOPIC, AclOperation.WRITE),
                (ResourceType.GROUP, AclOperation.READ),
            )
        ]
        for rule in admin.create_acls(rules).values():
            rule.result(WAIT_S)
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
    print(client, mechanism, said)
    assert said != "PASS"


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
    producer.produce(topic_of("librdkafka", SCRAM_256), b"x", on_delivery=lambda error, _: failed.append(error.name()))
    assert producer.flush(WAIT_S) == 0
    assert failed == ["TOPIC_AUTHORIZATION_FAILED"]
