"""Makes the archives of classes with which the start of Apache Kafka's tools, brokers and workers costs half.

An archive has the classes of some runs and belongs to one class path, and to every longer one that begins with it. See
`tests.support.jvm`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from gregor.spark_jobs.launch.shared_classes import dump_command
from tests.support.apache_kafka import ApacheKafka, ZooKeeper
from tests.support.connect import Worker, connect_jars
from tests.support.jvm import archive_file, class_path
from tests.support.kafka import java_command, kafka_jars
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.kafka_tools import KafkaTools
from tests.support.ports import free_port

TIMEOUT_S = 120
DUMP_TIMEOUT_S = 600
"""The JVM that writes an archive needs a processor for half a minute, and beside other work longer."""
TOOLS = "org.apache.kafka.tools"
OFFLINE = "default.api.timeout.ms=300\nrequest.timeout.ms=200\nmax.block.ms=300\n"
"""Settings of clients of a port where nothing listens."""

Training = Callable[[Path], None]


def recorded(*trainings: Training) -> list[str]:
    """Return the names of the classes that the JVMs load which the trainings start, in the JVM's own format."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with patch.dict(os.environ, JDK_JAVA_OPTIONS=f"-XX:DumpLoadedClassList={folder}/%p.classes"):
            for training in trainings:
                training(folder)
        lists = sorted(folder.glob("*.classes"))
        return list(dict.fromkeys(line for path in lists for line in path.read_text().splitlines()))


def make_archive(folders: Sequence[Path], classes: Iterable[str]) -> Path:
    """Make the archive of the jars in the folders with those of the classes that are in them or in the JVM itself.

    Return the file. It exists only when it is complete.
    """
    archive = archive_file(folders)
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        names, new = Path(name) / "all.classes", Path(name) / archive.name
        names.write_text("".join(f"{line}\n" for line in classes))
        command = dump_command("java", names, class_path(folders), new)
        subprocess.run(command, check=True, capture_output=True, timeout=DUMP_TIMEOUT_S)
        new.replace(archive)
    return archive


def run_tools(folder: Path) -> None:
    """Clients of the newest release, without a broker, and the JVM that runs many commands."""
    settings = folder / "offline.properties"
    settings.write_text(OFFLINE)
    nowhere = ["--bootstrap-server", f"127.0.0.1:{free_port()}", "--command-config", str(settings)]
    for main_class, *flags in (
        (f"{TOOLS}.TopicCommand", "--list"),
        (f"{TOOLS}.consumer.ConsoleConsumer", "--topic", "t", "--timeout-ms", "500"),
        (f"{TOOLS}.ConsoleProducer", "--topic", "t"),
    ):
        command = java_command(main_class, *nowhere, *flags)
        subprocess.run(command, input="line\n", text=True, capture_output=True, timeout=TIMEOUT_S)
    with KafkaTools() as tools:
        tools.run(f"{TOOLS}.TopicCommand", *nowhere, "--list")


def run_workers(folder: Path) -> None:
    """A worker of Connect on a single node."""
    port, controller = free_port(), free_port()
    file = folder / "server.properties"
    file.write_text(SINGLE_NODE.format(port=port, controller=controller, folder=folder))
    alone = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    with KafkaPeer(file, port), Worker(folder, "worker", f"127.0.0.1:{port}", "g", free_port(), alone) as worker:
        worker.until_ready()
        worker.stop()


def run_old_cluster(folder: Path) -> None:
    """The last release with ZooKeeper: both servers, and a client."""
    with ExitStack() as running:
        zookeeper = ZooKeeper(folder)
        running.callback(zookeeper.kill)
        kafka = ApacheKafka(folder, folder / "data", zookeeper, 1)
        running.callback(kafka.kill)
        command = java_command(
            f"{TOOLS}.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--list", version="3.9.1"
        )
        subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
        kafka.stop()
        zookeeper.stop()


def main() -> None:
    """Make the archives that are missing."""
    newest, old = [kafka_jars()], [kafka_jars("3.9.1")]
    workers = [*newest, connect_jars()]
    for class_paths, trainings in (([newest, workers], (run_tools, run_workers)), ([old], (run_old_cluster,))):
        if not all(archive_file(folders).exists() for folders in class_paths):
            classes = recorded(*trainings)
            for folders in class_paths:
                print(make_archive(folders, classes))


if __name__ == "__main__":
    main()
