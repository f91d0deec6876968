"""`gregor doctor` against a running broker; its findings are tested in doctor/test_checks.py."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.__main__ import main
from gregor.broker.cli.doctor.checks import Level
from gregor.broker.cli.doctor.command import check_bootstrap, resolve
from gregor.broker.cli.doctor.tls_probe import speaks_tls
from tests.support.processes import BrokerProcess, free_port


@pytest.mark.slow
def test_a_healthy_broker_and_its_folder(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={broker.folder / 'data'}\nbroker.id=0\n")
    main(["topics", "--create", "--topic", "doctored", "--if-not-exists", "--bootstrap-server", broker.bootstrap])
    capsys.readouterr()
    code = main(["doctor", "--bootstrap-server", broker.bootstrap, "--config", str(file)])
    lines = capsys.readouterr().out.splitlines()
    # Findings about the machine's disk and limits depend on the machine.
    own = [line for line in lines if line.startswith("WRONG") and "free" not in line and "ulimit" not in line]
    assert own == []
    assert code == int(any(line.startswith("WRONG") for line in lines))
    assert f"ok    broker 0 is advertised as {broker.bootstrap} (127.0.0.1) and answers there" in lines
    assert any(f"{broker.folder / 'data'} belongs to broker 0 of cluster" in line for line in lines)


@pytest.mark.slow
def test_quota_above_all_time_of_a_gregor_broker_is_named(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    alter = ("configs", *at, "--alter", "--user", "doctored")
    assert main([*alter, "--add-config", "request_percentage=400"]) == 0
    try:
        main(["doctor", *at])
        line = "note  request_percentage=400 of user doctored never acts: 100 is all the time of one broker"
        assert line in capsys.readouterr().out.splitlines()
    finally:
        main([*alter, "--delete-config", "request_percentage"])


def test_unreachable_broker_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["doctor", "--bootstrap-server", f"127.0.0.1:{port}"]) == 1
    said = capsys.readouterr()
    assert f"WRONG 127.0.0.1:{port} does not accept connections: connection refused" in said.out
    assert said.err == "gregor doctor: 1 of 1 findings need a change.\n"


def test_foreign_server_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def hang_up() -> None:
            for _ in range(5):
                server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert main(["doctor", "--bootstrap-server", f"127.0.0.1:{server.getsockname()[1]}"]) == 1
        thread.join()
    assert "-> give a listener of a Kafka broker" in capsys.readouterr().out


def test_an_alert_is_tls_and_other_answers_are_not() -> None:
    alert = bytes.fromhex("15 03 03 00 02 02 28")
    for answer, tls in ((alert, True), (b"", False), (b"HTTP/1.1 400 Bad Request\r\n\r\n", False)):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(30)

            def speak(answer: bytes = answer, server: socket.socket = server) -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

            thread = threading.Thread(target=speak)
            thread.start()
            assert speaks_tls("127.0.0.1", server.getsockname()[1]) is tls
            thread.join()


def test_unsupported_protocol_is_an_error_and_no_finding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=SASL_SSL")
    assert main(["doctor", "--command-config", str(tmp_path / "client.properties")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "sasl.mechanism=GSSAPI: sasl.kerberos.service.name=: is not set" in said.err


def test_a_name_that_is_none() -> None:
    def connect(address: tuple[str, int], timeout: float) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    (finding,) = check_bootstrap("kafka.example:9092", connect)
    assert (finding.level, finding.text) == (Level.WRONG, "kafka.example is not a known host")


def test_ipv6_is_written_as_it_is_given() -> None:
    def connect(address: tuple[str, int], timeout: float) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    (finding,) = check_bootstrap("[::1]:9092", connect)
    assert finding.text == "[::1]:9092 does not accept connections: connection refused"


def test_addresses_of_names() -> None:
    assert resolve("192.0.2.7") == ["192.0.2.7"]
    assert resolve("a" * 300) == []
