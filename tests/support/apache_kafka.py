"""Apache Kafka 3.9.1 itself as a process, with ZooKeeper or as its own controller (KRaft), on a data folder of ours."""

from __future__ import annotations

import pathlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping

from tests.support.jvm import class_path, small_jvm
from tests.support.kafka import kafka_jars
from tests.support.processes import answers_metadata, free_port

VERSION = "3.9.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
CLUSTER_ID = "Y3Jvc3NpbmctYm9yZGVycw"

_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c{1} %m%n
"""

# The first check of the retention waits until the cleaner exists: a check that begins before and ends after it was made
# fails with "Compaction ... cannot be resumed since it is not paused" (LogManager.startupWithConfigOverrides of 3.9).
_COMMON = {
    "broker.id": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "2000",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "controlled.shutdown.max.retries": "1",
}

_ENTRY_START = re.compile(r"^(?=(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) )", re.MULTILINE)
_TRACE_LINES = 12


class Java:
    """A process of a class in those jars; its log lines are in `output`."""

    def __init__(self, folder: pathlib.Path, name: str, main_class: str, *arguments: str) -> None:
        jars = kafka_jars(VERSION)
        config = folder / "log4j.properties"
        config.write_text(_LOG4J)
        self.output = folder / f"{name}.out"
        options = [*small_jvm(jars, heap_mb=300), f"-Dlog4j.configuration=file:{config}"]
        command = ["java", *options, "-cp", class_path([jars]), main_class, *arguments]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder
            )

    def log(self) -> str:
        return self.output.read_text(errors="replace")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class ZooKeeper(Java):
    def __init__(self, folder: pathlib.Path) -> None:
        self.port = free_port()
        config = folder / "zoo.cfg"
        config.write_text(
            f"dataDir={folder}/zookeeper\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        super().__init__(folder, "zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config))
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.log()
                time.sleep(0.05)


class ApacheKafka(Java):
    """One broker on a data folder. Without a ZooKeeper it is its own controller."""

    def __init__(
        self,
        folder: pathlib.Path,
        data: pathlib.Path,
        zookeeper: ZooKeeper | None,
        run: int,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        settings = {**_COMMON, "log.dirs": str(data), "listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        settings |= overrides or {}
        if zookeeper is not None:
            settings["zookeeper.connect"] = f"127.0.0.1:{zookeeper.port}"
        else:
            controller = free_port()
            settings |= {
                "process.roles": "broker,controller",
                "node.id": "0",
                "controller.quorum.voters": f"0@127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
        config = folder / f"server-{run}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if zookeeper is None and not (data / "meta.properties").exists():
            storage = Java(folder, "format", "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
            assert storage.process.wait(STOP_TIMEOUT_S) == 0, storage.log()
        super().__init__(folder, f"kafka-{run}", "kafka.Kafka", str(config))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_metadata(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Apache Kafka did not start:\n{self.log()}")
            time.sleep(0.05)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def complaints(self) -> list[str]:
        """Return the log entries of level WARN or worse, each with the first lines of its stack trace."""
        entries = _ENTRY_START.split(self.log())
        found = [entry.splitlines() for entry in entries if entry.startswith(("WARN", "ERROR", "FATAL"))]
        return ["\n".join(lines[:_TRACE_LINES]) for lines in found]
