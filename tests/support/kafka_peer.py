"""Apache Kafka as a single KRaft node, which receives the same requests as gregor: 4.3.1, or the release that a test
names."""

from __future__ import annotations

import pathlib
import subprocess
import time

from tests.support.kafka import java_command
from tests.support.processes import answers_metadata

CLUSTER_ID = "gregorConfigsPeer-000A"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120
SINGLE_NODE = """\
process.roles=broker,controller
node.id=0
controller.quorum.voters=0@localhost:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
"""
"""A properties file, still without {port}, {controller} (another port) and {folder}."""


class KafkaPeer:
    """Runs on a properties file, which names log.dirs; a context manager."""

    def __init__(self, file: pathlib.Path, port: int, features: tuple[str, ...] = (), version: str = "4.3.1") -> None:
        self.file = file
        self.port = port
        self._version = version
        self._features = [word for feature in features for word in ("--feature", feature)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def __enter__(self) -> KafkaPeer:
        folder = self.file.parent
        tool = "kafka.tools.StorageTool"
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.file), *self._features]
        command = java_command(tool, *arguments, version=self._version)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=START_TIMEOUT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        broker = java_command("kafka.Kafka", str(self.file), heap_mb=400, version=self._version)
        with (folder / "kafka.out").open("wb") as out:
            self._process = subprocess.Popen(broker, cwd=folder, stdout=out, stderr=out)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_metadata(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Apache Kafka did not start: {(folder / 'kafka.out').read_text()[-800:]}")
            time.sleep(0.05)
        return self

    def stop(self) -> int:
        """End it as an operator does, so that its files are complete; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __exit__(self, *exception: object) -> None:
        self.kill()
