"""The load: Java and librdkafka producers and members of consumer groups, each a process on the clients' host."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from tests.cluster.history import Group, History
from tests.cluster.security import CONSUMER as CONSUMER_USER
from tests.cluster.security import PRODUCER as PRODUCER_USER
from tests.cluster.security import Security
from tests.cluster.stuck import STUCK_EXIT
from tests.support.kafka import java_command, kafka_jars
from tests.support.processes import ROOT, clean_environment

END_TIMEOUT_S = 120.0

_LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %c{1} %m%n
"""
TOOLS = "org.apache.kafka.tools"

PRODUCER: dict[str, object] = {
    "linger.ms": 5,
    "request.timeout.ms": 5000,
    "delivery.timeout.ms": 300_000,
    "max.block.ms": 300_000,
    "metadata.max.age.ms": 5000,
    "socket.connection.setup.timeout.ms": 3000,
    "reconnect.backoff.max.ms": 500,
    "retries": 2_147_483_647,
    "buffer.memory": 67_108_864,
}
CONSUMER: dict[str, object] = {
    "request.timeout.ms": 6000,
    "default.api.timeout.ms": 20_000,
    "metadata.max.age.ms": 5000,
    "fetch.max.wait.ms": 200,
    "heartbeat.interval.ms": 1000,
    "socket.connection.setup.timeout.ms": 3000,
    "reconnect.backoff.max.ms": 500,
}
JAVA_PRODUCER = 1
"""The producer numbers from which those of each kind count up."""
LIBRDKAFKA_PRODUCER = 101


REPORTER = "SentReport"
"""The class that prints how many records a producer of Java has sent; see SentReport.java."""


def compile_reporter(folder: pathlib.Path) -> subprocess.Popen[bytes]:
    """Begin to compile it into the folder."""
    source = pathlib.Path(__file__).with_name(f"{REPORTER}.java")
    return subprocess.Popen(
        ["javac", "-proc:none", "-cp", f"{kafka_jars('3.9.1')}/*", "-d", str(folder), str(source)],
        stdin=subprocess.DEVNULL,
    )


class Client:
    """A process that is ended and started again; its output of each time is in a file of `events`."""

    def __init__(self, folder: pathlib.Path, name: str, command: list[str]) -> None:
        self.name = name
        self.events: list[pathlib.Path] = []
        self.stuck = 0
        """How often it ended because its library had locked itself up; see stuck.py."""
        self._folder = folder
        self._command = command
        self._start()

    def _start(self) -> None:
        self.events.append(self._folder / f"{self.name}-{len(self.events)}.json")
        with self.events[-1].open("wb") as events, (self._folder / f"{self.name}.err").open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=events, stderr=errors
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def gone(self) -> bool:
        """Whether it has ended, and not because its library had locked itself up."""
        return self._process.poll() not in (None, STUCK_EXIT)

    def end(self) -> None:
        """Send the signal to end when its work is done."""
        self._process.terminate()

    def ended(self) -> None:
        """Waits for that. Raises TimeoutError."""
        try:
            self.stuck += self._process.wait(END_TIMEOUT_S) == STUCK_EXIT
        except subprocess.TimeoutExpired:
            threads = "; ".join(self._threads())
            raise TimeoutError(f"{self.name} did not end within {END_TIMEOUT_S:.0f} s: {threads}") from None

    def _threads(self) -> list[str]:
        """Each with the system call that it is in: all of them in futex, that is a client that has locked itself up."""
        found = []
        for task in sorted(pathlib.Path(f"/proc/{self._process.pid}/task").glob("*")):
            with contextlib.suppress(OSError):
                found.append(f"{(task / 'comm').read_text().strip()} {(task / 'wchan').read_text()}")
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def kill_and_start(self) -> None:
        self.kill()
        self._start()

    def replace_stuck(self) -> None:
        """Start it again if its library had locked itself up, which counts."""
        if self._process.poll() == STUCK_EXIT:
            self.stuck += 1
            self._start()

    def printed(self) -> str:
        """Return everything about its errors."""
        errors = (self._folder / f"{self.name}.err").read_text(errors="replace")
        events = (line for lines in self.said() for line in lines)
        return errors + "".join(line for line in events if "error" in line or '"success":false' in line)

    def said(self) -> Iterator[list[str]]:
        """The lines of each of its lives."""
        for path in self.events:
            yield path.read_text().splitlines(keepends=True)


class Load:
    """Two producers and two groups of two members on one topic; one group has members of both kinds. The reporter has
    been compiled into the folder."""

    GROUPS = ("mixed", "plain")

    def __init__(
        self,
        folder: pathlib.Path,
        bootstrap: str,
        security: Security,
        topic: str,
        partitions: int,
        rate: int,
        acks: str,
    ) -> None:
        self._folder, self._bootstrap, self._security, self._topic = folder, bootstrap, security, topic
        each = rate // 2
        own = ["producer", topic, str(partitions), str(LIBRDKAFKA_PRODUCER), str(each), acks]
        flags = [
            "--throughput",
            str(each),
            "--value-prefix",
            str(JAVA_PRODUCER),
            "--acks",
            "-1" if acks == "all" else acks,
        ]
        own_settings: dict[str, object] = {
            "enable.idempotence": str(acks == "all").lower(),
            "metric.reporters": REPORTER,
        }
        self.producers = [
            self._own("producer-librdkafka", PRODUCER_USER, *own),
            self._java(
                "producer-java",
                "VerifiableProducer",
                "--producer.config",
                PRODUCER | own_settings | security.java(PRODUCER_USER),
                *flags,
            ),
        ]
        member = ["--verbose", "--reset-policy", "earliest", "--session-timeout", "10000", "--group-id"]
        self.groups = {
            "mixed": [
                self._own("mixed-librdkafka", CONSUMER_USER, "consumer", topic, "mixed"),
                self._java(
                    "mixed-java",
                    "VerifiableConsumer",
                    "--consumer.config",
                    CONSUMER | security.java(CONSUMER_USER),
                    *member,
                    "mixed",
                ),
            ],
            "plain": [self._own(f"plain-{index}", CONSUMER_USER, "consumer", topic, "plain") for index in range(2)],
        }

    def _own(self, name: str, user: str, module: str, *arguments: str) -> Client:
        settings = self._folder / f"{name}.settings.json"
        settings.write_text(json.dumps({"bootstrap.servers": self._bootstrap, **self._security.librdkafka(user)}))
        return Client(self._folder, name, [sys.executable, "-m", f"tests.cluster.{module}", str(settings), *arguments])

    def _java(self, name: str, tool: str, option: str, settings: dict[str, object], *flags: str) -> Client:
        config = self._folder / f"{name}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        common = ["--bootstrap-server", self._bootstrap, "--topic", self._topic, option, str(config)]
        command = java_command(f"{TOOLS}.{tool}", *common, *flags, heap_mb=128, version="3.9.1")
        command[command.index("-cp") + 1] += f"{os.pathsep}{self._folder}"
        log = self._folder / "log4j-clients.properties"
        log.write_text(_LOG4J)
        return Client(self._folder, name, [command[0], f"-Dlog4j.configuration=file:{log}", *command[1:]])

    @property
    def all(self) -> list[Client]:
        return [*self.producers, *(member for members in self.groups.values() for member in members)]

    def replace_stuck(self) -> None:
        for client in self.all:
            client.replace_stuck()

    def stuck(self) -> dict[str, int]:
        """Return how often the library of each client has locked itself up, of those where it has."""
        return {client.name: client.stuck for client in self.all if client.stuck}

    def gone(self) -> list[str]:
        """Return the clients that ended without a signal; those whose libraries have locked themselves up are replaced
        the next time."""
        return [client.name for client in self.all if client.gone]

    def end(self, clients: list[Client]) -> None:
        for client in clients:
            client.end()
        for client in clients:
            client.ended()

    def history(self) -> History:
        """Return the history of everything that the clients have printed so far."""
        history = History()
        for producer in self.producers:
            for lines in producer.said():
                history.read_producer(lines)
        for name, members in self.groups.items():
            group = history.groups.setdefault(name, Group())
            for member in members:
                for lines in member.said():
                    group.read(lines)
        return history
