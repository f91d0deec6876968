"""ZooKeeper and brokers as processes on the hosts of a run; gregor's, or Apache Kafka 3.9.1 with the same settings."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from gregor.broker.launch.zookeeper_server import server_command
from gregor.broker.session_watcher.predecessor import FILE_NAME
from tests.cluster.network import Network
from tests.cluster.security import Security
from tests.support.kafka import java_command
from tests.support.processes import ROOT, clean_environment
from tests.support.session_watchers import watcher_of

PORT = 9092
METRICS_PORT = 9095
METRICS_USER = "scraper:only-of-this-run"
"""User and password of those who read the metrics, which are not on a loopback address."""
CLIENT_PORT = 2181
SESSION_MS = 6000
LAG_MS = 6000
STOP_TIMEOUT_S = 120.0
FILL_TRIES = 100
GREGOR, KAFKA = KINDS = ("gregor", "kafka-3.9.1")

SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "zookeeper.connection.timeout.ms": 60_000,
    "offsets.topic.num.partitions": 4,
    "replica.lag.time.max.ms": LAG_MS,
    "replica.socket.timeout.ms": 5000,
    "controller.socket.timeout.ms": 5000,
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": 5,
    "group.initial.rebalance.delay.ms": 0,
    # Segments are rolled all along, so that followers roll and truncate across them.
    "log.segment.bytes": 1_048_576,
    "log.roll.ms": 20_000,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
}

ONLY_KAFKA = {"controlled.shutdown.retry.backoff.ms": 500}
"""The last broker that stops finds no other that could lead its partitions, and does not wait long for one."""

_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka=INFO
log4j.logger.state.change.logger=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %c{1} %m%n
"""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Process(NamedTuple):
    """One life of a server: its number, its process, and its times in ms since 1970; None until its end was seen."""

    start: int
    pid: int
    begun_ms: int
    ended_ms: int | None


class Server:
    """A process on a host. It is started, ended and started again; its output is added to one file."""

    def __init__(self, network: Network, name: str, folder: pathlib.Path) -> None:
        self.network = network
        self.name = name
        self.folder = folder
        self.output = folder / f"{name}.out"
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lives: list[Process] = []
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        assert not self.running, f"{self.name} runs already"
        self._note_end()
        self.starts += 1
        with self.output.open("ab") as output:
            output.write(f"===== start {self.starts}\n".encode())
            output.flush()
            # A session of its own: a stop or kill reaches the server and the processes that it started.
            self._process = subprocess.Popen(
                self.network.on(self.name, *self.command()),
                cwd=ROOT,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._lives.append(Process(self.starts, self._process.pid, _now_ms(), None))

    def _note_end(self, at_ms: int | None = None) -> None:
        if self._lives and self._lives[-1].ended_ms is None:
            self._lives[-1] = self._lives[-1]._replace(ended_ms=_now_ms() if at_ms is None else at_ms)

    def lives(self) -> list[Process]:
        """Return all its processes; of one that ended by itself, the end is noted at the next start or here."""
        if not self.running:
            self._note_end()
        return list(self._lives)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        at_ms = _now_ms()  # others may notice its end before this process does
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._note_end(at_ms)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM; the exit code. Raises TimeoutError about a server that does not end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout_s)
            self._note_end()
            return code
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not end within {timeout_s:.0f} s of SIGTERM") from None

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None when it is still running after that time."""
        deadline = time.monotonic() + timeout_s
        while self.running and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.exit_code


class ZooKeeper(Server):
    def __init__(self, network: Network, folder: pathlib.Path) -> None:
        super().__init__(network, "zookeeper", folder)
        self.connect = f"{network.address(self.name)}:{CLIENT_PORT}"
        self._config = folder / "zoo.cfg"
        self._config.write_text(
            f"tickTime=500\ndataDir={folder}/zookeeper-data\nclientPort={CLIENT_PORT}\nmaxClientCnxns=0\n"
            "maxSessionTimeout=60000\n"
        )

    def command(self) -> list[str]:
        return server_command(self._config, heap_mb=128)


class Broker(Server):
    """Broker `number` with one log folder, a small file system of its own that can be made full."""

    def __init__(
        self,
        network: Network,
        folder: pathlib.Path,
        number: int,
        kind: str,
        settings: dict[str, object],
        security: Security,
    ) -> None:
        super().__init__(network, f"broker-{number}", folder)
        self.security = security
        self.number = number
        self.kind = kind
        self.address = f"{network.address(self.name)}:{PORT}"
        self.mount = folder / f"disk-{number}"
        self.mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "none", str(self.mount)], check=True)
        self.data = self.mount / "data"
        lines = {
            **SETTINGS,
            **(ONLY_KAFKA if kind == KAFKA else {}),
            **settings,
            "broker.id": number,
            "listeners": f"{security.protocol}://{self.address}",
            **security.broker_settings(),
            "log.dirs": self.data,
        }
        if kind == GREGOR:
            lines["gregor.metrics.listener"] = f"{network.address(self.name)}:{METRICS_PORT}"
            password_file = folder / f"metrics-password-{number}"
            password_file.touch(0o600)
            password_file.write_text(METRICS_USER)
            lines["gregor.metrics.password.file"] = password_file
        self._config = folder / f"server-{number}.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        (folder / "log4j.properties").write_text(_LOG4J)
        self._flushed: dict[pathlib.Path, int] = {}

    def start(self) -> None:
        self._flushed = {path: path.stat().st_size for path in self.data.glob("*/*.log")}
        super().start()

    def command(self) -> list[str]:
        if self.kind == GREGOR:
            return [sys.executable, "-m", "gregor.broker", "start", str(self._config)]
        command = java_command("kafka.Kafka", str(self._config), version="3.9.1")
        return [command[0], f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}", *command[1:]]

    @property
    def is_watched(self) -> bool:
        """Whether something else than the timeout ends its ZooKeeper session when it has died."""
        return self.kind == GREGOR

    def kill_with_watcher(self) -> None:
        """Kill the broker and its session watcher, which is in a process group of its own, at one moment: the broker
        stands still meanwhile, so neither acts on the end of the other."""
        self.pause()
        watcher = watcher_of(self.pid) if self.running and self.is_watched else None
        if watcher is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(watcher, signal.SIGKILL)
        self.kill()

    def boot_machine(self) -> None:
        """Let the note of its last session be of an earlier boot of the machine. The broker must not run."""
        path = self.data / FILE_NAME
        if path.exists():
            session, origin = path.read_text().splitlines()
            # In place: the note counts only in the file that it names.
            path.write_text(f"{session}\n{json.dumps(json.loads(origin) | {'boot': 'an earlier one'})}\n")

    def printed(self, start: int) -> str:
        """Return what it has printed from that start to the next."""
        since = self.output.read_text(errors="replace").rpartition(f"===== start {start}\n")[2]
        return since.partition("===== start ")[0]

    def lose_unflushed(self, dice: random.Random) -> None:
        """Cut a part off each log, as a power cut would: of the last segment, as those before were flushed when it
        began, and nothing that was there when the broker started. The broker must not run."""
        for folder in {path.parent for path in self.data.glob("*/*.log")}:
            last = max(folder.glob("*.log"))
            os.truncate(last, dice.randint(min(self._flushed.get(last, 0), last.stat().st_size), last.stat().st_size))

    def fill_disk(self) -> None:
        """Fill the disk until not a byte more fits."""
        for left in reversed(range(FILL_TRIES)):
            volume = os.statvfs(self.mount)
            try:
                self._remount(f"{(volume.f_blocks - volume.f_bfree) * volume.f_frsize}")
                return
            except subprocess.CalledProcessError:
                # Something was written meanwhile.
                if not left:
                    raise

    def free_disk(self) -> None:
        self._remount("1g")

    def remove_disk(self) -> None:
        """Remove the file system, at once for the folder that it is in, which can be removed then, too."""
        subprocess.run(["umount", "--lazy", str(self.mount)], check=True)

    def _remount(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.mount)], check=True, capture_output=True)

    def partition_bytes(self, topic: str) -> dict[int, bytes]:
        """partition -> the bytes of all its segments, in the order of their offsets."""
        return {
            int(folder.name.rpartition("-")[2]): b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))
            for folder in self.data.glob(f"{topic}-[0-9]*")
            if folder.name.rpartition("-")[0] == topic
        }
