"""Apache Kafka 4.3.1, which `make bench` measures beside gregor."""

from __future__ import annotations

import pathlib
import subprocess
import time

from tests.support.kafka import QUIET_LOG4J, kafka_jars
from tests.support.processes import answers_metadata, free_port

CLUSTER_ID = "gregorBenchKafkaPeer-0"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120
GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}
"""Of both sides: what is measured is work, not waits that are the same for both."""
SESSION_TIMEOUT_MS = 3_600_000
"""The process is stopped by a signal while the other side is measured. With the default of 9 s the controller fences
the broker when it runs again, and a topic that is created meanwhile is refused (INVALID_REPLICATION_FACTOR)."""


class Peer:
    """Apache Kafka 4.3.1 as a single KRaft node, with the settings of its own quick start and a 1 GB heap."""

    def __init__(self, folder: pathlib.Path, tls_settings: dict[str, str] | None = None) -> None:
        """With settings of TLS it has a second listener, at `tls_port`."""
        self.folder = folder
        self.data = folder / "data"
        self.port, controller = free_port(), free_port()
        self.tls_port = free_port() if tls_settings else 0
        encrypted = f"SSL://127.0.0.1:{self.tls_port}," if tls_settings else ""
        folder.mkdir()
        (folder / "log4j2.yaml").write_text(QUIET_LOG4J)
        (folder / "server.properties").write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@localhost:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},{encrypted}CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL\n"
            f"log.dirs={self.data}\nbroker.session.timeout.ms={SESSION_TIMEOUT_MS}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            + "".join(f"{key}={value}\n" for key, value in {**GROUP_SETTINGS, **(tls_settings or {})}.items())
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        run = ["java", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", f"-Dlog4j2.configurationFile={self.folder}/log4j2.yaml"]
        run += ["-cp", f"{kafka_jars()}/*"]
        if not (self.data / "meta.properties").exists():
            storage = [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "server.properties"]
            subprocess.run(storage, cwd=self.folder, check=True, capture_output=True)
        with (self.folder / "out").open("ab") as out:
            self.process = subprocess.Popen(
                [*run, "kafka.Kafka", "server.properties"], cwd=self.folder, stdout=out, stderr=out
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_metadata(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Apache Kafka did not start: {(self.folder / 'out').read_text()[-500:]}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def stop(self) -> None:
        """Let the broker shut down cleanly."""
        assert self.process is not None, "not started"
        self.process.terminate()
        self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
