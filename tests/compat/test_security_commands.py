"""kafka-configs and kafka-delegation-tokens of Apache Kafka 4.3.1 on a secured broker, as users of SASL_SSL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from gregor.protocol.client import version_ranges
from gregor.protocol.client_security import security_of_client
from gregor.protocol.messages import ApiVersionsRequest, MetadataRequest
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sync_client import SyncConnection
from tests.support.certificates import Certificates
from tests.support.kafka_tools import KafkaTools, Said
from tests.support.secured_broker import SecuredBroker, login

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
PASSWORDS = {"broker": "not-for-any-log-1", "admin": "not-for-any-log-2", "anna": "not-for-any-log-3"}
ZOE, ZOE_2 = "not-for-any-log-4", "not-for-any-log-5"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": "not-for-any-log-6",
}
WAIT_S = 60.0
DAY_MS = 24 * 3600 * 1000
Run = Callable[..., Said]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), certificates, PASSWORDS, SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def run(secured: SecuredBroker, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return a function that runs a tool with the settings of a client."""
    folder = tmp_path_factory.mktemp("clients")
    with KafkaTools() as tools:

        def call(settings: Mapping[str, str], main_class: str, *arguments: str) -> Said:
            file = folder / "client.properties"
            file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
            place = ("--bootstrap-server", secured.address("SASL_SSL"), "--command-config", str(file))
            return tools.run(main_class, *place, *arguments)

        yield call


@pytest.fixture(scope="module")
def base(certificates: Certificates) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca_file,
    }


def plain(base: Mapping[str, str], user: str) -> dict[str, str]:
    entry = login("plain.PlainLoginModule", username=user, password=PASSWORDS[user])
    return {**base, "sasl.mechanism": "PLAIN", "sasl.jaas.config": entry}


def scram(base: Mapping[str, str], mechanism: str, user: str, password: str, **more: str) -> dict[str, str]:
    entry = login("scram.ScramLoginModule", username=user, password=password, **more)
    return {**base, "sasl.mechanism": mechanism, "sasl.jaas.config": entry}


def connects(secured: SecuredBroker, settings: Mapping[str, str]) -> bool:
    """Whether a client is authenticated, and served."""
    security = security_of_client(settings)
    port = secured.ports["SASL_SSL"]
    with SyncConnection("localhost", port, "test", WAIT_S, WAIT_S, security) as connection:
        offered = version_ranges(connection.exchange(ApiVersionsRequest(), 0))
        try:
            connection.log_in(offered)
        except AuthenticationFailed:
            return False
        return bool(connection.exchange(MetadataRequest(topics=[]), 9).brokers)


def test_scram_users_of_kafka_configs(secured: SecuredBroker, run: Run, base: dict[str, str]) -> None:
    admin, place = plain(base, "admin"), ("--entity-type", "users", "--entity-name", "zoe")
    added = f"{SCRAM_256}=[iterations=8192,password={ZOE}],{SCRAM_512}=[password={ZOE_2}]"
    said = run(admin, CONFIGS, *place, "--alter", "--add-config", added)
    assert (said.code, "Completed updating config for user zoe." in said.out) == (0, True), said
    first, second = scram(base, SCRAM_256, "zoe", ZOE), scram(base, SCRAM_512, "zoe", ZOE_2)
    assert connects(secured, first) and connects(secured, second)
    assert not connects(secured, scram(base, SCRAM_256, "zoe", ZOE_2))
    described = run(admin, CONFIGS, *place, "--describe").out
    assert f"SCRAM credential configs for user-principal 'zoe' are {SCRAM_256}=iterations=8192, " in described
    assert f"{SCRAM_512}=iterations=4096" in described
    assert "zoe" in run(admin, CONFIGS, "--entity-type", "users", "--describe").out
    # Another password replaces the first one.
    assert run(admin, CONFIGS, *place, "--alter", "--add-config", f"{SCRAM_256}=[password={ZOE_2}]").code == 0
    assert not connects(secured, first)
    assert connects(secured, scram(base, SCRAM_256, "zoe", ZOE_2))
    assert run(admin, CONFIGS, *place, "--alter", "--delete-config", SCRAM_512).code == 0
    assert not connects(secured, second)
    assert SCRAM_512 not in run(admin, CONFIGS, *place, "--describe").out
    refused = run(plain(base, "anna"), CONFIGS, *place, "--alter", "--add-config", f"{SCRAM_512}=[password=x]")
    assert refused.code != 0 and "ClusterAuthorizationException" in refused.out + refused.err
    few = run(admin, CONFIGS, *place, "--alter", "--add-config", f"{SCRAM_512}=[iterations=4095,password=x]")
    assert few.code != 0 and "4096" in few.out + few.err


def test_tokens_of_kafka_delegation_tokens(secured: SecuredBroker, run: Run, base: dict[str, str]) -> None:
    anna, admin = plain(base, "anna"), plain(base, "admin")
    lifetime = ("--max-life-time-period", str(2 * DAY_MS))
    made = run(anna, TOKENS, "--create", *lifetime, "--renewer-principal", "User:bob")
    assert made.code == 0, made
    words = next(line.split() for line in made.out.splitlines() if "User:anna" in line)
    token_id, hmac = words[:2]
    token = scram(base, SCRAM_512, token_id, hmac, tokenauth="true")
    assert connects(secured, token)
    assert connects(secured, scram(base, SCRAM_256, token_id, hmac, tokenauth="true"))
    assert not connects(secured, scram(base, SCRAM_512, token_id, hmac))  # without tokenauth it is the name of a user
    described = run(anna, TOKENS, "--describe", "--owner-principal", "User:anna").out
    assert token_id in described and "User:bob" in described
    assert token_id not in run(plain(base, "anna"), TOKENS, "--describe", "--owner-principal", "User:admin").out
    for request in (("--create", *lifetime), ("--describe",)):  # a client of a token makes, and sees, none
        refused = run(token, TOKENS, *request)
        assert refused.code != 0 and "not allowed on" in refused.err, refused
    renewed = run(anna, TOKENS, "--renew", "--renew-time-period", str(DAY_MS), "--hmac", hmac)
    assert renewed.code == 0 and "Completed renew operation" in renewed.out, renewed
    foreign = run(admin, TOKENS, "--renew", "--renew-time-period", str(DAY_MS), "--hmac", hmac)
    assert foreign.code != 0 and "DelegationTokenOwnerMismatchException" in foreign.out + foreign.err
    expired = run(anna, TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert expired.code == 0 and "Completed expire operation" in expired.out, expired
    assert not connects(secured, token)
    assert token_id not in run(anna, TOKENS, "--describe").out
    unknown = run(anna, TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert unknown.code != 0 and "DelegationTokenNotFoundException" in unknown.out + unknown.err


def test_no_secret_is_logged(secured: SecuredBroker) -> None:
    log = secured.log()
    assert re.search("authentication of .* failed on SASL_SSL", log)
    assert [secret for secret in (*PASSWORDS.values(), ZOE, ZOE_2) if secret in log] == []
