"""Secrets are in no log line, response, error, process argument or file that is not theirs, over a whole run.

A secured broker starts, logs at DEBUG, serves clients, refuses others in many ways, and stops; commands run against it
with right and with wrong credentials; other brokers fail to start with settings that contain secrets.
"""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.__main__ import main
from gregor.broker.admin_socket.address import connect
from gregor.protocol.client_security import security_of_client
from gregor.protocol.messages import (
    AlterUserScramCredentialsRequest,
    ApiMessage,
    CreateDelegationTokenRequest,
    DescribeConfigsRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from gregor.protocol.sasl.scram import MECHANISMS, salted_password
from gregor.protocol.sync_client import ConnectionEnded, SyncConnection
from tests.support.certificates import Certificates
from tests.support.identity_provider import identity_provider, token_body
from tests.support.planted import Arguments, Secrets
from tests.support.processes import BrokerProcess
from tests.support.secured_broker import SCRAM, USER, SecuredBroker, login, signed_token, unsigned_token
from tests.support.wire import RawConnection

pytestmark = pytest.mark.very_slow

BROKER, BROKER_LOGGER = 4, 8
SET = 0
PLAIN_JAAS = "listener.name.sasl_ssl.plain.sasl.jaas.config"
ABSENT = "zookeeper.connect=127.0.0.1:1\nzookeeper.connection.timeout.ms=300\n"
STORE = "gregor-metadata.sqlite"
WAIT_S = 60.0


class Run:
    """The broker of the run, its secrets, and everything that it and the commands have shown."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.folder, self.certificates = folder, certificates
        self.secrets = secrets = Secrets()
        self.shown: list[tuple[str, str | bytes]] = []
        self.passwords = {name: secrets.plant(f"password of {name}") for name in ("broker", USER)}
        self.scram = {name: secrets.plant(f"{name} password") for name in SCRAM}
        self.tokens = {"signed": signed_token(), "unsigned": unsigned_token(), "expired": signed_token(lifetime_s=-500)}
        for kind, token in self.tokens.items():
            secrets.add(f"{kind} token", token)
        store = folder / "server.p12"
        self.store_password = secrets.plant("store password")
        store.write_bytes(certificates.server.pkcs12(self.store_password))
        for line in certificates.server.key_pem.splitlines()[1:-1]:
            secrets.add("private key", line)
        self.broker = SecuredBroker(
            folder / "broker",
            certificates,
            self.passwords,
            {
                "ssl.keystore.location": "",
                "listener.name.unsigned.ssl.keystore.location": certificates.server_file,
                "listener.name.ssl.ssl.keystore.type": "PKCS12",
                "listener.name.ssl.ssl.keystore.location": str(store),
                "listener.name.ssl.ssl.keystore.password": self.store_password,
                "listener.name.sasl_ssl.ssl.keystore.key": certificates.server.key_pem.replace("\n", "\\n"),
                "listener.name.sasl_ssl.ssl.keystore.certificate.chain": certificates.server.chain_pem.replace(
                    "\n", "\\n"
                ),
                "delegation.token.secret.key": secrets.plant("secret key of tokens"),
                "ssl.keystore.pasword": secrets.plant("value of a misspelled key"),
                "my.own.secret": secrets.plant("value of an unknown key"),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:ANONYMOUS;User:{USER};User:broker",
                "connection.failed.authentication.delay.ms": "1",
            },
        )

    def client(self, protocol: str, mechanism: str = "", jaas: str = "") -> dict[str, str]:
        """Return the settings of a client as Java's clients have them."""
        settings = {
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.ca_file,
        }
        return settings | ({"sasl.mechanism": mechanism, "sasl.jaas.config": jaas} if mechanism else {})

    def file_of(self, settings: dict[str, str]) -> str:
        path = self.folder / f"client-{len(list(self.folder.glob('client-*')))}.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        return str(path)

    def show(self, place: str, output: str | bytes) -> None:
        self.shown.append((place, output))

    def leaks(self) -> list[tuple[str, list[str]]]:
        return [(place, names) for place, output in self.shown if (names := self.secrets.found(output))]


@pytest.fixture
def run(tmp_path: Path, certificates: Certificates) -> Iterator[Run]:
    run = Run(tmp_path, certificates)
    with run.broker:
        run.broker.add_scram_user(USER, run.scram)
        yield run


def shown_by(capfd: pytest.CaptureFixture[str], work: Callable[[], object]) -> str:
    capfd.readouterr()
    result = work()
    said = capfd.readouterr()
    return f"{result!r}\n{said.out}\n{said.err}"


# ---- clients -------------------------------------------------------------------------------------------------------


def exchange_tokens(run: Run, mechanism: str, *tokens: bytes) -> list[Any]:
    """Send tokens of SASL; return the responses, as far as there are some."""
    found: list[Any] = []
    port = run.broker.ports["SASL_SSL"]
    with SyncConnection("localhost", port, "t", WAIT_S, WAIT_S, security_of_client(run.client("SSL"))) as connection:
        try:
            found.append(connection.exchange(SaslHandshakeRequest(mechanism=mechanism), 1))
            found += [connection.exchange(SaslAuthenticateRequest(auth_bytes=one), 2) for one in tokens]
        except (ConnectionEnded, ConnectionResetError):
            pass
    return found


def refuse_in_many_ways(run: Run) -> None:
    """Exchanges that fail, with secrets in each of their messages."""
    wrong = run.secrets.plant("wrong password").encode()
    malformed = run.secrets.plant("part of a malformed message").encode()
    bearer = b"n,,\x01auth=Bearer "
    cases: list[tuple[str, tuple[bytes, ...]]] = [
        ("PLAIN", (b"\0alice\0" + wrong,)),
        ("PLAIN", (b"\0alice\0x\0" + malformed,)),
        ("PLAIN", (b"alice:" + malformed,)),
        ("PLAIN", (b"\0alice\0\xff" + malformed,)),
        ("PLAIN", (b"bob\0alice\0" + run.passwords[USER].encode(),)),
        ("SCRAM-SHA-256", (malformed,)),
        ("SCRAM-SHA-512", (b"n,,n=alice,r=abc", b"c=biws,r=abc,p=" + malformed)),
        ("SCRAM-SHA-512", (b"n,,n=alice,r=abc", malformed)),
        ("SCRAM-SHA-512", (b"n,,n=alice,r=abc,x=\xff" + malformed,)),
        ("OAUTHBEARER", (bearer + run.tokens["expired"].encode() + b"\x01\x01", b"\x01")),
        ("OAUTHBEARER", (bearer + run.tokens["unsigned"].encode() + b"\x01\x01", b"\x01")),
        ("OAUTHBEARER", (bearer + malformed + b"\x01\x01", malformed)),
        ("OAUTHBEARER", (malformed,)),
        ("NONE", ()),
    ]
    for mechanism, tokens in cases:
        responses = exchange_tokens(run, mechanism, *tokens)
        assert responses, mechanism
        run.show(f"responses to {mechanism}", repr(responses))
        assert len(responses) == 1 or responses[-1].error_code, (mechanism, responses)


def use_delegation_tokens(run: Run) -> None:
    """A token for alice, and requests about tokens that fail. The token itself belongs to its owner's responses."""
    jaas = login("scram.ScramLoginModule", username=USER, password=run.scram["SCRAM-SHA-512"])
    security = security_of_client(run.client("SASL_SSL", "SCRAM-SHA-512", jaas))
    with SyncConnection("localhost", run.broker.ports["SASL_SSL"], "t", WAIT_S, WAIT_S, security) as connection:
        offered = connection.api_versions("t", "1")
        connection.log_in({one.api_key: (one.min_version, one.max_version) for one in offered.api_keys})
        made = connection.exchange(CreateDelegationTokenRequest(max_lifetime_ms=-1), 2)
        assert made.error_code == 0
        run.secrets.add("HMAC of a delegation token", made.hmac)
        assert connection.exchange(DescribeDelegationTokenRequest(owners=None), 2).tokens[0].hmac == made.hmac
        guessed = run.secrets.plant("guessed HMAC").encode()
        for request in (
            RenewDelegationTokenRequest(hmac=guessed, renew_period_ms=1),
            ExpireDelegationTokenRequest(hmac=guessed, expiry_time_period_ms=1),
        ):
            answer = connection.exchange(request, 2)
            assert answer.error_code
            run.show("responses about tokens", repr(answer))
        renewed = connection.exchange(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=9999), 2)
        assert renewed.error_code == 0
        run.show("responses about tokens", repr(renewed))
        secret = base64.b64encode(made.hmac).decode()
    run.secrets.add("password of a token", secret)
    jaas = login("scram.ScramLoginModule", username=made.token_id, password=secret, tokenauth="true")
    words = ("--command-config", run.file_of(run.client("SASL_SSL", "SCRAM-SHA-512", jaas)))
    run.show(
        "topics with a token", repr(main(["topics", "--bootstrap-server", run.broker.address("SASL_SSL"), *words]))
    )


# ---- requests of administrators ------------------------------------------------------------------------------------


def ask(run: Run, request: ApiMessage, version: int) -> Any:
    with RawConnection(run.broker.port) as connection:
        answer = connection.ask(request, version)
    run.show(type(request).__name__, repr(answer))
    return answer


def alter(run: Run, key: str, value: str, kind: int = BROKER, name: str = "0") -> int:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    code: int = ask(run, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code
    return code


def change_settings(run: Run) -> None:
    """Settings with secrets, good and bad ones."""
    plant = run.secrets.plant
    bad = plant("value of a refused setting")
    for key, value in (
        (PLAIN_JAAS, f'x.PlainLoginModule required username="broker" password="{bad}"'),
        (PLAIN_JAAS, f'x.PlainLoginModule required user_a="{bad}'),
        (PLAIN_JAAS, f"{bad} {bad} {bad}=;"),
        (PLAIN_JAAS, f'x.OtherModule required password="{bad}";'),
        ("listener.name.ssl.ssl.keystore.password", bad),
        ("listener.name.sasl_ssl.ssl.keystore.key", f"-----BEGIN PRIVATE KEY-----\n{bad}\n-----END PRIVATE KEY-----"),
        ("listener.name.ssl.ssl.truststore.certificates", bad),
    ):
        assert alter(run, key, value), key
    users = {f"user_{name}": password for name, password in run.passwords.items()}
    users["user_bob"] = plant("password in a dynamic setting")
    jaas = login("plain.PlainLoginModule", username="broker", password=run.passwords["broker"], **users)
    assert alter(run, PLAIN_JAAS, jaas) == 0
    salted = salted_password(MECHANISMS["SCRAM-SHA-256"], plant("password of carol"), b"salt", 4096)
    run.secrets.add("salted password", salted)
    for iterations in (4096, 5):
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="carol", mechanism=1, iterations=iterations, salt=b"salt", salted_password=salted
        )
        [result] = ask(run, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0).results
        assert bool(result.error_code) == (iterations == 5)
    assert len(ask(run, DescribeUserScramCredentialsRequest(users=None), 0).results) == 2


def describe_settings(run: Run) -> None:
    for name in ("0", ""):
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        [result] = ask(run, request, 4).results
        assert result.error_code == 0
        entries = {one.name: one for one in result.configs}
        if name:
            assert entries[PLAIN_JAAS].is_sensitive and entries[PLAIN_JAAS].value is None
            assert entries["my.own.secret"].value is None


def use_admin_socket(run: Run) -> None:
    orders: list[Any] = [
        {"command": "stalls"},
        {"command": "compact", "topic": None, "explain": True},
        {"command": "retention", "topic": None, "explain": True},
        {"command": "configs"},
    ]
    for order in orders:
        with connect(run.broker.overrides["log.dirs"]) as connection:
            connection.sendall(json.dumps(order).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answers:
                output = answers.read()
        assert output
        run.show(f"admin socket {order}", output)


# ---- commands ------------------------------------------------------------------------------------------------------

COMMANDS = (
    "topics --create --topic t --partitions 1",
    "topics --describe",
    "configs --describe --all --broker 0",
    "configs --describe --broker 0",
    "configs --describe --broker-defaults",
    "configs --describe --all --broker-logger 0",
    "acls --list",
    "acls --explain User:alice Write topic:t",
    "groups --list",
    "features describe",
    "log-dirs",
    "transactions list",
    "console-consumer --topic t --from-beginning --max-messages 1 --timeout-ms 100",
    "doctor",
)


def run_commands(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    address = run.broker.address("SASL_SSL")
    wrong = run.secrets.plant("wrong password of a command")
    settings = {
        name: run.client("SASL_SSL", mechanism, login(f"{module}LoginModule", username=USER, password=password))
        for name, mechanism, module, password in (
            ("right", "PLAIN", "plain.Plain", run.passwords[USER]),
            ("wrong", "SCRAM-SHA-512", "scram.Scram", wrong),
        )
    }
    settings["malformed"] = run.client("SASL_SSL", "PLAIN", f'x.PlainLoginModule required password="{wrong}"')
    settings["other module"] = run.client("SASL_SSL", "PLAIN", f'x.OtherModule required password="{wrong}";')
    settings["no option"] = run.client("SASL_SSL", "PLAIN", f'x.PlainLoginModule required user="{wrong}";')
    settings["no store"] = {**settings["right"], "ssl.keystore.location": "/no/file", "ssl.keystore.password": wrong}
    settings["no key"] = {**settings["right"], "ssl.keystore.type": "PEM", "ssl.keystore.key": wrong}
    for name, texts in settings.items():
        file = run.file_of(texts)
        for command in COMMANDS if name == "right" else ("topics --list", "doctor"):
            words = [*command.split(), "--bootstrap-server", address, "--command-config", file]

            def work(words: list[str] = words) -> int:
                return main(words)

            output = shown_by(capfd, work)
            run.show(f"gregor {command} ({name})", output)
            if name == "right":
                assert "refuses the client" not in output and "Traceback" not in output, (command, output)
            elif command != "doctor":
                assert not output.startswith("0\n"), (name, command, output)
    config = str(run.broker.file)
    run.show(
        "doctor --config", shown_by(capfd, lambda: main(["doctor", "--bootstrap-server", address, "--config", config]))
    )
    for path in sorted(run.folder.glob("broker/data/t-0/*.log")):
        run.show("dump-log", shown_by(capfd, lambda path=path: main(["dump-log", "--files", str(path)])))


def use_an_identity_provider(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """Commands of both clients, gregor's own and librdkafka, with tokens that a provider gives, and with a refusal."""
    secret = run.secrets.plant("secret of a client of a provider")
    jaas = login("oauthbearer.OAuthBearerLoginModule", clientId="anna", clientSecret=secret)
    address = run.broker.address("SASL_SSL")
    with identity_provider(lambda: (200, b"")) as provider:
        for path, status, code in (("", 200, 0), ("/other", 401, 1)):
            provider.answer = lambda status=status: (status, token_body(run.tokens["signed"]))
            url = {"sasl.oauthbearer.token.endpoint.url": provider.url + path}
            file = run.file_of(run.client("SASL_SSL", "OAUTHBEARER", jaas) | url)
            before = len(provider.requests)
            for command in ("topics --list", "features describe"):
                words = [*command.split(), "--bootstrap-server", address, "--command-config", file]

                def work(words: list[str] = words) -> int:
                    return main(words)

                output = shown_by(capfd, work)
                run.show(f"gregor {command} (provider, {status})", output)
                assert output.startswith(f"{code}\n"), (command, output)
                assert code == 0 or "for the client anna: it responds with the status 401" in output, output
            # The commands share the process, and so the token.
            assert len(provider.requests) - before == (1 if status == 200 else 2)


# ---- brokers that do not start -------------------------------------------------------------------------------------


def fail_to_start(run: Run) -> None:
    """Settings that end a start, each with a secret."""
    assert run.broker.file is not None
    good = run.broker.file.read_text()
    bad = run.secrets.plant("value that ends a start")
    for number, line in enumerate(
        (
            f'{PLAIN_JAAS}=x.PlainLoginModule required password="{bad}"',
            f"{PLAIN_JAAS}={bad}",
            f'{PLAIN_JAAS}=x.OtherModule required password="{bad}";',
            f"listener.name.ssl.ssl.keystore.password={bad}",
            f"listener.name.sasl_ssl.ssl.keystore.key={bad}",
            f'listener.name.unsigned.oauthbearer.sasl.jaas.config=x.OAuthBearerLoginModule required a="{bad}";',
            f"sasl.enabled.mechanisms=PLAIN,GSSAPI\n{PLAIN_JAAS}={bad}",
            f'{ABSENT}gregor.zookeeper.jaas.config=x.DigestLoginModule required password="{bad}"',
            f"{ABSENT}zookeeper.ssl.client.enable=true\nzookeeper.ssl.keystore.location=/no/file\n"
            f"zookeeper.ssl.keystore.password={bad}",
        )
    ):
        broker = BrokerProcess(run.folder / f"failed-{number}")
        broker.overrides["listeners"] = run.broker.overrides["listeners"]
        broker.file = run.folder / f"failed-{number}.properties"
        broker.file.write_text(f"{good}{line}\n")
        broker.start(wait_until_ready=False)
        assert broker.process is not None
        try:
            assert broker.process.wait(WAIT_S) != 0, line
        finally:
            broker.kill()
        assert broker.log() and "Traceback" not in broker.log(), (line, broker.log())
        run.show(f"start with {line.partition('=')[0]} ({number})", broker.log())


# ---- the run -------------------------------------------------------------------------------------------------------


def files_with_secrets(run: Run) -> dict[str, list[str]]:
    """By name, the files below the broker's folder that hold secrets. The embedded store keeps dynamic settings as they
    are given, with mode 0600."""
    found = {}
    for path in run.broker.folder.rglob("*"):
        if path.is_file() and path != run.broker.file:
            allowed = ("password in a dynamic setting", "password of broker", f"password of {USER}")
            in_store = path.name.startswith(STORE)
            if in_store:
                assert path.stat().st_mode & 0o77 == 0
            names = run.secrets.found(path.read_bytes(), except_for=allowed if in_store else ())
            if names:
                found[path.name] = names
    return found


def test_planted_secrets_are_nowhere_else(
    run: Run, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Arguments() as arguments:
        for name in ("root", "gregor", "gregor.authorizer"):
            assert alter(run, name, "DEBUG", BROKER_LOGGER) in (0, 40), name
        assert alter(run, "kafka.request.logger", "TRACE", BROKER_LOGGER) == 0
        refuse_in_many_ways(run)
        use_delegation_tokens(run)
        change_settings(run)
        describe_settings(run)
        use_admin_socket(run)
        run_commands(run, capfd)
        use_an_identity_provider(run, capfd)
        run.show("files of a running broker", repr(files_with_secrets(run)))
        assert files_with_secrets(run) == {}
        assert run.broker.stop() == 0
        fail_to_start(run)
    log = run.broker.log()
    assert "DEBUG" in log
    for mechanism in ("PLAIN", "OAUTHBEARER"):
        assert f"authenticated as User:{USER} on SASL_SSL (SASL/{mechanism})" in log
    assert "Completed request:" in log
    assert "Traceback" not in log
    run.show("the log", log)
    run.show("the log of clients", caplog.text)
    run.show("arguments of processes", b"\n".join(arguments.seen))
    assert any(b"log.dirs" in one for one in arguments.seen), "no broker among the processes"
    assert files_with_secrets(run) == {}
    assert run.leaks() == []


def test_the_search_finds_each_form() -> None:
    secrets = Secrets()
    text = secrets.plant("one")
    key = bytes(range(100, 160))
    secrets.add("two", key)
    assert secrets.found("nothing here") == []
    for one in (text, f"x {text!r}", text.encode().hex(), f"{key!r}", key.hex()):
        assert len(secrets.found(one)) == 1, one
    for before in ("", "a", "ab", "abc"):
        assert secrets.found(base64.b64encode(f"{before}{text}xyz".encode())) == ["one"]
        assert secrets.found(base64.urlsafe_b64encode(before.encode() + key + b"z")) == ["two"]
    assert secrets.found(text, except_for=["one"]) == []
