"""gregor.broker.launch.local_zookeeper: its file, its port, and whether it answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gregor.broker.launch.local_zookeeper import four_letter_word, free_ports, is_free, serves, write_config
from tests.support.processes import free_port


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """Answers one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                assert connection.recv(16) == b"conf"
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


CONF = "clientPort=1\nsecureClientPort=-1\ndataDir={}/data/version-2\ndataDirSize=1\ndataLogDir=/other/version-2\n"


@pytest.mark.parametrize(
    ("answer", "own"),
    [
        (CONF.format("/a/j\u00fcrgen/zk").encode(), True),
        (CONF.format("/a/j?rgen/zk").encode(), True),
        (CONF.format("/b/zk").encode(), False),
        (b"This ZooKeeper instance is not currently serving requests\n", False),
        (b"", False),
        (b"HTTP/1.1 400", False),
    ],
)
def test_a_server_is_known_by_its_folder(answer: bytes, own: bool) -> None:
    """Two supervisors that find the same port free: the server of one of them answers both."""
    with server(answer) as port:
        assert serves(Path("/a/j\u00fcrgen/zk"), port) is own


def test_who_is_not_there_is_not_ok() -> None:
    port = free_port()
    assert not serves(Path("/a/zk"), port)
    with pytest.raises(OSError):
        four_letter_word("127.0.0.1", port, b"ruok")


def test_its_file_is_read_by_java(tmp_path: Path) -> None:
    text = write_config(tmp_path / "back\\slash", 2182).read_text()
    assert f"dataDir={tmp_path}/back\\\\slash/data\n" in text


def test_its_file_keeps_it_on_the_loopback(tmp_path: Path) -> None:
    text = write_config(tmp_path / "new", 2182).read_text()
    assert f"dataDir={tmp_path}/new/data\n" in text
    assert "clientPort=2182\nclientPortAddress=127.0.0.1\n" in text


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_taken_ports_are_passed_over(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        taken = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} on this machine")
    with taken:
        port: int = taken.getsockname()[1]
        assert not is_free(port)
        if port < 65000:
            assert port not in free_ports(port, 2)


def test_any_ports_are_free_and_differ() -> None:
    assert len(set(free_ports(0, 5))) == 5


def test_ports_end_somewhere() -> None:
    with pytest.raises(OSError, match="not 9 free ports from 65530"):
        free_ports(65530, 9)
