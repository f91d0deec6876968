"""A ZooKeeper server in a process of its own, for tests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from kazoo.retry import KazooRetry

from gregor.broker.launch.local_zookeeper import four_letter_word
from gregor.broker.launch.zookeeper_server import server_command
from gregor.broker.session_watcher.tls import wrap_of
from gregor.config.broker import BrokerConfig
from gregor.config.security.zookeeper import zookeeper_security
from tests.support.certificates import PASSWORD, Certificates
from tests.support.processes import clean_environment, free_port

START_TIMEOUT_S = 120.0


def retry() -> KazooRetry:
    """How a test's own session repeats its commands when the connection is lost: the server may be without processor
    time for longer than the client waits."""
    return KazooRetry(max_tries=30, delay=0.1, max_delay=2)


class ZooKeeperProcess:
    """One server on a free port with its data in `folder`; sessions may last from 2 to 20 ticks. A context manager."""

    def __init__(self, folder: Path, tick_ms: int = 500) -> None:
        self.folder = folder
        self.port = free_port()
        self.ensemble: dict[str, str] = {}
        """More settings: those of one of several servers."""
        self.server_id: int | None = None
        self.jvm_flags = ""
        self.output = folder / "zookeeper.out"
        self._tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> ZooKeeperProcess:
        self.launch()
        self.until_ready()
        return self

    def launch(self) -> None:
        """Start the process; one of several is ready only when most of them are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.server_id is not None:
            (self.folder / "data").mkdir(exist_ok=True)
            (self.folder / "data" / "myid").write_text(str(self.server_id))
        config = self.folder / "zoo.cfg"
        lines = {
            "tickTime": self._tick_ms,
            "dataDir": self.folder / "data",
            **self.port_settings,
            "maxClientCnxns": 0,
            **self.ensemble,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(config),
                env={**clean_environment(), "SERVER_JVMFLAGS": self.jvm_flags},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def port_settings(self) -> dict[str, object]:
        return {"clientPort": self.port, "clientPortAddress": "127.0.0.1"}

    def command(self, config: Path) -> list[str]:
        return server_command(config, environ={**os.environ, "SERVER_JVMFLAGS": self.jvm_flags})

    def until_ready(self) -> None:
        """Wait until it serves clients: one of several without a leader responds that it does not."""
        assert self._process is not None, "not started"
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"Mode:" not in self.ask(b"srvr"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ZooKeeper did not start:\n{self.output.read_text(errors='replace')}")
            time.sleep(0.05)

    @property
    def leads(self) -> bool:
        """Whether it is the leader of several servers."""
        return b"Mode: leader" in self.ask(b"srvr")

    def ask(self, word: bytes) -> bytes:
        """The answer to a four-letter word, nothing where there is no server."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word)
                with connection.makefile("rb") as answer:
                    return answer.read()
        except OSError:
            return b""

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> ZooKeeperProcess:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.kill()


class SecuredZooKeeper(ZooKeeperProcess):
    """A server that is run by `gregor zookeeper FILE`: one port, with TLS and certificates of clients, and users of
    SASL by name and password."""

    def __init__(self, folder: Path, certificates: Certificates, users: dict[str, str], tick_ms: int = 500) -> None:
        super().__init__(folder, tick_ms)
        jaas = folder / "server.jaas"
        options = "".join(f' user_{name}="{password}"' for name, password in users.items())
        jaas.write_text(f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required{options}; }};\n")
        self.jvm_flags = f"-Djava.security.auth.login.config={jaas}"
        store = folder / "server.p12"
        store.write_bytes(certificates.server.pkcs12())
        self._certificates = certificates
        self.ensemble = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "ssl.keyStore.location": str(store),
            "ssl.keyStore.type": "PKCS12",
            "ssl.keyStore.password": PASSWORD,
            "ssl.trustStore.location": certificates.ca_file,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        }

    @property
    def port_settings(self) -> dict[str, object]:
        return {"secureClientPort": self.port, "secureClientPortAddress": "127.0.0.1"}

    def command(self, config: Path) -> list[str]:
        return [sys.executable, "-m", "gregor.broker", "zookeeper", str(config), "--heap-mb", "128"]

    @property
    def client_settings(self) -> dict[str, str]:
        """Settings of a broker, or of a tool, whose certificate is alice's."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.protocol": "TLSv1.3",  # the only one of a server of 3.9 without ssl.enabledProtocols
            "zookeeper.ssl.keystore.location": self._certificates.alice_file,
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.truststore.location": self._certificates.ca_file,
            "zookeeper.ssl.truststore.type": "PEM",
        }

    def ask(self, word: bytes) -> bytes:
        wrap = wrap_of(zookeeper_security(BrokerConfig(self.client_settings)))
        try:
            return four_letter_word("127.0.0.1", self.port, word, 5, wrap)
        except OSError:
            return b""


class ZooKeeperEnsemble:
    """Several servers that stand in for each other. A context manager."""

    def __init__(self, folder: Path, count: int = 3, tick_ms: int = 500) -> None:
        self.servers = [ZooKeeperProcess(folder / f"zookeeper-{number}", tick_ms) for number in range(1, count + 1)]
        members = {
            f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()};127.0.0.1:{server.port}"
            for number, server in enumerate(self.servers, 1)
        }
        for number, server in enumerate(self.servers, 1):
            server.server_id = number
            server.ensemble = {"initLimit": "20", "syncLimit": "10", **members}

    @property
    def connect(self) -> str:
        return ",".join(server.connect for server in self.servers)

    def __enter__(self) -> ZooKeeperEnsemble:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.until_ready()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for server in self.servers:
            server.kill()
