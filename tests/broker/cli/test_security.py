"""`gregor security init`: its files fit each other, and others cannot read them."""

from __future__ import annotations

import ast
import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.__main__ import main
from gregor.config.broker import BrokerConfig
from gregor.config.properties import load_properties, parse_properties
from gregor.config.security.password_encoder import is_encoded
from gregor.config.security.tls import TlsSettings, server_context
from gregor.protocol.client_security import security_of_client
from gregor.replication.channels.inter_broker_security import security_between_brokers
from gregor.replication.store.broker_passwords import BrokerPasswords


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Make a handshake in memory. Raises ssl.SSLError."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert sides == []


def test_files_of_broker_and_clients_fit_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "secrets"
    hosts = ["--host", "kafka1.example", "--host", "10.0.0.1"]
    assert main(["security", "init", str(folder), *hosts, "--user", "anna", "--port", "9999"]) == 0
    shown = capsys.readouterr()
    config = BrokerConfig.load(str(folder / "broker.properties"))
    assert [(one.host, one.port, one.security_protocol) for one in config.listeners] == [
        ("kafka1.example", 9999, "SASL_SSL")
    ]
    server = server_context(TlsSettings.of_listener(config, "SASL_SSL"))
    between = security_between_brokers(config)
    assert between.tls_context is not None and between.new_mechanism is not None
    handshake(server, between.tls_context(), "10.0.0.1")
    for user in ("admin", "anna"):
        client = security_of_client(load_properties(str(folder / user / "client.properties")))
        assert client.tls_context is not None and client.new_mechanism is not None
        handshake(server, client.tls_context(), "kafka1.example")
        password = client.new_mechanism("localhost").first().split(b"\0")[2].decode()
        assert f'user_{user}="{password}"' in config["listener.name.sasl_ssl.plain.sasl.jaas.config"]
        assert password in (folder / user / "librdkafka.properties").read_text()
        assert password not in shown.out + shown.err
        for file in ("kafka_python.py", "spark.py"):
            compile((folder / user / file).read_text(), file, "exec")
    assert {path.stat().st_mode & 0o77 for path in [folder, *folder.rglob("*")]} == {0}


def test_dynamic_passwords_of_the_broker_are_encrypted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each folder has a secret of its own, which is shown nowhere but in the broker's file."""
    key = "listener.name.sasl_ssl.ssl.keystore.password"
    secrets, texts = [], []
    for folder in (tmp_path / "one", tmp_path / "two"):
        assert main(["security", "init", str(folder)]) == 0
        shown = capsys.readouterr()
        broker_file = folder / "broker.properties"
        config = BrokerConfig.load(str(broker_file))
        secrets.append(str(config["password.encoder.secret"]))
        assert secrets[-1] not in shown.out + shown.err
        holders = [path for path in folder.rglob("*") if path.is_file() and secrets[-1] in path.read_text()]
        assert holders == [broker_file] and broker_file.stat().st_mode & 0o777 == 0o600
        encoded = asyncio.run(BrokerPasswords(config).encoded({key: "hunter2"}, {}))
        assert is_encoded(encoded[key])
        texts.append(encoded)
        again = BrokerPasswords(BrokerConfig.load(str(broker_file)))
        assert asyncio.run(again.decoded(encoded)) == {key: "hunter2"}
        assert asyncio.run(again.decoded(texts[0])) == ({key: "hunter2"} if len(texts) == 1 else {})
    assert len(set(secrets)) == 2 and min(len(secret) for secret in secrets) >= 32


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.key").write_text("a key in use")
    assert main(["security", "init", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--user", 'a"b'], "give a name of 1 to 64 letters"),
        (["--user", ".."], "give a name of"),
        (["--user", "u" * 65], "give a name of"),
        (["--user", "ca.pem"], "give a name of"),
        (["--user", "\u00e4"], "give a name of"),
        (["--host", ""], "give an IP address, or a name"),
        (["--host", "\u00e4"], "give an IP address, or a name"),
        (["--host", "kafka..example"], "give an IP address, or a name"),
        (["--host", "h" * 64], "give an IP address, or a name"),
        (["--host", "*.example"], "give an IP address, or a name"),
        (["--port", "65536"], "is not in the range"),
    ],
)
def test_strange_names_are_refused_before_a_folder_is_made(
    arguments: list[str], cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["security", "init", str(tmp_path / "new"), *arguments]) == 1
    assert cause in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_host_may_be_longer_than_a_common_name(tmp_path: Path) -> None:
    host = "broker-0.kafka." + "n" * 60 + ".svc.cluster.example"
    folder = tmp_path / "secrets"
    assert main(["security", "init", str(folder), "--host", host, "--host", "*.kafka.example", "--host", "::1"]) == 0
    server = server_context(TlsSettings.of_listener(BrokerConfig.load(str(folder / "broker.properties")), "SASL_SSL"))
    client = security_of_client(load_properties(str(folder / "admin/client.properties")))
    assert client.tls_context is not None
    for one in (host, "b1.kafka.example", "::1"):
        handshake(server, client.tls_context(), one)


def test_paths_are_read_as_they_are(tmp_path: Path) -> None:
    """Java reads Latin-1, with a backslash as an escape; so do the programs with theirs."""
    folder = tmp_path / 'j\u00fcr\u0142 back\\slash "x"'
    assert main(["security", "init", str(folder), "--user", "anna"]) == 0
    of_user = folder / "anna"
    for file, keys in {
        folder / "broker.properties": {"ssl.keystore.location": "broker.pem", "ssl.truststore.location": "ca.pem"},
        of_user / "client.properties": {"ssl.truststore.location": "ca.pem"},
    }.items():
        read = parse_properties(file.read_bytes().decode("latin-1"))
        assert {key: read[key] for key in keys} == {key: f"{folder}/{name}" for key, name in keys.items()}
    program = ast.parse((of_user / "kafka_python.py").read_text("utf-8"))
    assert f"{folder}/ca.pem" in [node.value for node in ast.walk(program) if isinstance(node, ast.Constant)]
    spark: dict[str, Any] = {}
    exec((of_user / "spark.py").read_text("utf-8"), spark)
    assert spark["OPTIONS"]["kafka.ssl.truststore.location"] == f"{folder}/ca.pem"
    quoted = json.dumps(f"{folder}/ca.pem", ensure_ascii=False)
    assert f"os.ReadFile({quoted})" in (of_user / "franz.go").read_text("utf-8")
