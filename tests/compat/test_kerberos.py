"""SASL/GSSAPI with a real KDC: Java's clients, kcat, gregor's commands, and three brokers among themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gregor.config.properties import load_properties
from tests.compat.records import WAIT_S
from tests.support.gregor_cluster import GregorCluster, until
from tests.support.kafka import run_kafka_tool
from tests.support.kafka_tools import KafkaTools
from tests.support.kerberos import REALM, KerberosRealm, gssapi_folder
from tests.support.ports import free_port
from tests.support.processes import ROOT, clean_environment

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

SERVICE = "kafka"
BROKER = f"{SERVICE}/localhost@{REALM}"
ADMIN, ALICE, BOB, STRANGER = "admin", "alice/laptop", "bob", "stranger"
RULES = "RULE:[2:$1](alice)s/alice/Alice/,RULE:[1:$1](admin|bob),RULE:[2:$1](kafka)"
"""Alice's short name differs from her principal; no rule fits the stranger."""
TOPIC = "orders"
IDS = (0, 1, 2)
PRODUCER, CONSUMER = "org.apache.kafka.tools.ConsoleProducer", "org.apache.kafka.tools.consumer.ConsoleConsumer"


class Secured(NamedTuple):
    realm: KerberosRealm
    cluster: GregorCluster
    bootstrap: str
    stale: str
    """The address of a listener whose keytab has an old key of the broker."""
    files: dict[str, Path]
    """The client settings of each principal."""
    addresses: dict[int, dict[str, str]]
    """Of each broker, by listener."""

    def gregor(self, *words: str, file: str | None = ADMIN, bootstrap: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of gregor as a principal, or with the ticket cache."""
        path = self.realm.folder / "cache.properties" if file is None else self.files[file]
        return subprocess.run(
            [
                *(sys.executable, "-m", "gregor.broker", *words),
                *("--bootstrap-server", bootstrap or self.bootstrap, "--command-config", str(path)),
            ],
            cwd=ROOT,
            env=environment(self.realm),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=WAIT_S,
        )


def environment(realm: KerberosRealm) -> dict[str, str]:
    return {**clean_environment(), **realm.environment, "PYTHONPATH": str(gssapi_folder())}


def login(keytab: Path, principal: str) -> str:
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        f' keyTab="{keytab}" principal="{principal}";'
    )


def client_file(path: Path, jaas: str = "") -> Path:
    texts = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": SERVICE}
    path.write_text("".join(f"{key}={text}\n" for key, text in {**texts, "sasl.jaas.config": jaas}.items()))
    return path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("kerberos")
    gssapi = {"PYTHONPATH": str(gssapi_folder())}
    with KerberosRealm(folder / "realm") as realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        principals = (ADMIN, ALICE, BOB, STRANGER)
        realm.add(BROKER, *principals)
        old_key = realm.keytab(BROKER, "old.keytab")
        key = realm.keytab(BROKER, "kafka.keytab")
        files = {
            name: client_file(
                folder / f"{number}.properties", login(realm.keytab(name, f"{number}.keytab"), f"{name}@{REALM}")
            )
            for number, name in enumerate(principals)
        }
        client_file(realm.folder / "cache.properties")
        cluster = GregorCluster(folder, 0)
        addresses = {}
        for broker_id in IDS:
            ports = {name: free_port() for name in ("PLAINTEXT", "KERBEROS", "STALE")}
            addresses[broker_id] = {name: f"localhost:{port}" for name, port in ports.items()}
            settings = {
                "listeners": ",".join(f"{name}://{address}" for name, address in addresses[broker_id].items()),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT,STALE:SASL_PLAINTEXT",
                "inter.broker.listener.name": "KERBEROS",
                "sasl.mechanism.inter.broker.protocol": "GSSAPI",
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": SERVICE,
                "sasl.kerberos.principal.to.local.rules": RULES,
                "listener.name.kerberos.gssapi.sasl.jaas.config": login(key, BROKER),
                "listener.name.stale.gssapi.sasl.jaas.config": login(old_key, BROKER),
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:kafka;User:admin",
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
            }
            broker = cluster.add(broker_id, settings)
            broker.port, broker.environment = ports["PLAINTEXT"], gssapi
        with cluster:
            found = Secured(realm, cluster, addresses[0]["KERBEROS"], addresses[0]["STALE"], files, addresses)
            topic = ("--create", "--topic", TOPIC, "--partitions", "1", "--replication-factor", "3")
            run_kafka_tool(
                "org.apache.kafka.tools.TopicCommand",
                *("--bootstrap-server", found.bootstrap, "--command-config", str(files[ADMIN]), *topic),
            )
            rule = ("--add", "--allow-principal", "User:Alice", "--operation", "All", "--topic", TOPIC, "--group", "*")
            done = found.gregor("acls", *rule)
            assert done.returncode == 0, done.stdout + done.stderr
            yield found


@pytest.fixture(scope="module")
def tools(secured: Secured) -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


def test_java_writes_and_reads_by_the_rule_of_its_short_name(secured: Secured, tools: KafkaTools) -> None:
    """The record is in two replicas at least, which brokers that authenticate among themselves have brought about."""
    to = ("--bootstrap-server", secured.bootstrap, "--topic", TOPIC)
    alice = str(secured.files[ALICE])
    run_kafka_tool(
        PRODUCER, *to, "--producer-property", "acks=all", "--command-config", alice, stdin="of Java\n", timeout_s=WAIT_S
    )
    limits = ("--from-beginning", "--max-messages", "1", "--timeout-ms", str(int(WAIT_S * 1000)))
    read = tools.run(CONSUMER, *to, *limits, "--group", "readers", "--command-config", alice)
    assert read.out == "of Java\n", read.err
    refused = tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *(*to, "--num-records", "1", "--record-size", "9", "--throughput", "-1"),
        *("--command-config", str(secured.files[BOB])),
    )
    assert f"Not authorized to access topics: [{TOPIC}]" in refused.out + refused.err, refused


@pytest.mark.parametrize("case", ["key of the broker", "no rule"])
def test_java_is_refused_with_a_text(secured: Secured, tools: KafkaTools, case: str) -> None:
    address, principal = (secured.stale, ADMIN) if case == "key of the broker" else (secured.bootstrap, STRANGER)
    said = tools.run(
        "org.apache.kafka.tools.AclCommand",
        *("--bootstrap-server", address, "--command-config", str(secured.files[principal]), "--list"),
    )
    assert said.code != 0
    assert (
        "SaslAuthenticationException: Authentication failed during authentication due to invalid credentials with SASL"
        " mechanism GSSAPI" in said.out + said.err
    )


@pytest.mark.parametrize("version", ["0.10.2.2", "2.8.2"])
def test_older_java(secured: Secured, version: str) -> None:
    """The tokens of 0.10.2.2, which has version 0 of the handshake, have no framing: a token behind the end of the
    exchange would be read as a response."""
    file = secured.files[ALICE]
    exported = "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"{os.environ['JAVA_TOOL_OPTIONS']} {exported}")
        run_kafka_tool(
            "kafka.tools.ConsoleProducer",
            *("--broker-list", secured.bootstrap, "--topic", TOPIC, "--producer.config", str(file)),
            *("--request-timeout-ms", "60000"),
            stdin=f"of Java {version}\n",
            version=version,
            timeout_s=WAIT_S,
        )
    assert f"of Java {version}" in kcat(secured, "-C", "-t", TOPIC, "-o", "beginning", "-e")


def kcat(secured: Secured, *arguments: str, stdin: str = "", bootstrap: str = "") -> str:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("needs kcat and its GSSAPI: apt-get install kcat libsasl2-modules-gssapi-mit")
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "sasl.kerberos.principal": f"{ALICE}@{REALM}",
        "sasl.kerberos.keytab": str(secured.realm.folder / "1.keytab"),
    }
    words = [word for key, text in settings.items() for word in ("-X", f"{key}={text}")]
    done = subprocess.run(
        [program, "-b", bootstrap or secured.bootstrap, *words, *arguments],
        input=stdin,
        env={**environment(secured.realm), "KRB5CCNAME": f"FILE:{secured.realm.folder / 'tickets of kcat'}"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kcat_writes_and_reads(secured: Secured) -> None:
    kcat(secured, "-P", "-t", TOPIC, "-X", "acks=all", stdin="of kcat\n")
    assert "of kcat" in kcat(secured, "-C", "-t", TOPIC, "-o", "beginning", "-e")


def test_broker_that_restarts_authenticates_to_the_others(secured: Secured) -> None:
    """The leader stops: records are written without it. It gets a ticket anew when it starts, and catches up."""
    cluster = secured.cluster
    cluster.until_isr(TOPIC, IDS)
    restarted = cluster.until_led(TOPIC)
    assert cluster.stop(restarted) == 0
    cluster.until_led(TOPIC, not_by=restarted)
    everywhere = ",".join(address["KERBEROS"] for address in secured.addresses.values())
    kcat(secured, "-P", "-t", TOPIC, "-X", "acks=all", stdin="of two brokers\n", bootstrap=everywhere)
    cluster.start(restarted)
    cluster.until_isr(TOPIC, IDS)
    (other,) = [one for one in IDS if one not in (restarted, cluster.until_led(TOPIC, not_by=restarted))]
    assert cluster.stop(other) == 0
    # Two replicas are in sync only if the broker that was restarted follows, which needs its own authentication.
    kcat(secured, "-P", "-t", TOPIC, "-X", "acks=all", stdin="of two others\n", bootstrap=everywhere)
    cluster.start(other)
    cluster.until_isr(TOPIC, IDS)
    read = kcat(secured, "-C", "-t", TOPIC, "-o", "beginning", "-e", bootstrap=everywhere)
    assert "of two brokers" in read and "of two others" in read


def test_commands_of_gregor_with_the_ticket_cache(secured: Secured) -> None:
    missing = secured.gregor("acls", "--list", file=None)
    assert "run kinit, or set useKeyTab=true" in missing.stderr
    secured.realm.get_ticket(f"{ADMIN}@{REALM}", secured.realm.folder / "0.keytab")
    found = secured.gregor("acls", "--list", file=None)
    assert found.returncode == 0 and "User:Alice" in found.stdout, found.stdout + found.stderr
    said = ""

    def is_well() -> bool:
        """Whether the doctor finds nothing wrong: replicas of a broker that restarted catch up."""
        nonlocal said
        doctor = secured.gregor("doctor", file=None)
        said = doctor.stdout + doctor.stderr
        return doctor.returncode == 0 and "WRONG" not in doctor.stdout

    until(is_well, "the doctor finds nothing wrong", explanation=lambda: f"\n{said}")


READ_TOPICS = """
import json, sys
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.settings import ClientSettings

print(*Cluster(ClientSettings.from_options(json.loads(sys.argv[1]))).topics())
"""


def test_the_client_of_spark_jobs_sees_the_topics_of_its_rules(secured: Secured) -> None:
    for principal, seen in ((ALICE, TOPIC), (BOB, "")):
        given = load_properties(str(secured.files[principal]))
        options = {f"kafka.{key}": text for key, text in {**given, "bootstrap.servers": secured.bootstrap}.items()}
        done = subprocess.run(
            [sys.executable, "-c", READ_TOPICS, json.dumps(options)],
            env=environment(secured.realm),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert (done.returncode, done.stdout.strip()) == (0, seen), done.stderr


def test_commands_of_gregor_say_why_they_are_refused(secured: Secured) -> None:
    refused = secured.gregor("acls", "--list", bootstrap=secured.stale)
    assert "SASL/GSSAPI: Authentication failed during authentication due to invalid credentials" in refused.stderr
    doctor = secured.gregor("doctor", bootstrap=secured.stale)
    assert "due to invalid credentials with SASL mechanism GSSAPI" in doctor.stdout
    assert "its keytab is older than its key, or no rule of sasl.kerberos.principal.to.local.rules" in doctor.stdout
    secured.realm.keytab(BOB, "new.keytab")
    outdated = secured.gregor("acls", "--list", file=BOB)
    assert "the keytab has another key than the KDC: export it again" in outdated.stderr
