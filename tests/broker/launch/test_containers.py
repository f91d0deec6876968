"""The compose file and the Dockerfile without a container engine: their settings and steps, run by processes.

Hosts of the compose file become ports of this machine, and volumes folders; all else is as it is written there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing, find_jars
from tests.support.gregor_cluster import until
from tests.support.processes import ROOT, answers_metadata, clean_environment, free_port
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

DOCKER = ROOT / "config" / "docker"
COMPOSE = (DOCKER / "docker-compose.yml").read_text()
DOCKERFILE = re.sub(r"(?m)^#.*\n", "", (DOCKER / "Dockerfile").read_text()).replace("\\\n", " ")
DATA = "/var/lib/gregor"
TIMEOUT_S = 120.0


def environment_of(service: str) -> dict[str, str]:
    """The variables of a service in the compose file."""
    found = re.search(rf"(?ms)^  {service}:\n(.*?)(?=^  ?\w|^\w|\Z)", COMPOSE)
    assert found is not None
    return {name: value.strip('"') for name, value in re.findall(r"(?m)^      ([A-Z]\w+): (.*)$", found[1])}


def image_variables() -> dict[str, str]:
    return dict(re.findall(r"(KAFKA_\w+)=(\S+)", DOCKERFILE))


class Loopback:
    """Gives each host and port of the compose file a port of this machine."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, int], int] = {}

    def port(self, host: str, port: int) -> int:
        return self._ports.setdefault((host, port), free_port())

    def translated(self, text: str, own: str) -> str:
        """Replace every `host:port`; the container itself is also 0.0.0.0 and, for its published ports, localhost."""

        def here(found: re.Match[str]) -> str:
            host = own if found[1] in ("0.0.0.0", "localhost") else found[1]
            ports = re.sub(r"\d+", lambda one: str(self.port(host, int(one[0]))), found[2])
            return "127.0.0.1" + ports.replace(";", ";127.0.0.1:")

        return re.sub(r"\b(zoo\d|kafka\d|localhost|0\.0\.0\.0)((?:[:;]\d+)+)", here, text)


class Container:
    """One process with an environment of its own."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def until_serving(self, port: int) -> None:
        def serves() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            return answers_metadata(port)

        until(serves, f"port {port} serves:\n{self.output.read_text()}", TIMEOUT_S)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()


def zookeeper(number: int, places: Loopback, folder: Path) -> ZooKeeperProcess:
    """The configuration that the entry point of ZooKeeper's image writes from the variables."""
    service = f"zoo{number}"
    variables = environment_of(service)
    server = ZooKeeperProcess(folder / service)
    server.port = places.port(service, 2181)
    server.server_id = int(variables["ZOO_MY_ID"])
    members = dict(one.split("=") for one in places.translated(variables["ZOO_SERVERS"], service).split())
    words = {"4lw.commands.whitelist": variables["ZOO_4LW_COMMANDS_WHITELIST"]}
    server.ensemble = {"initLimit": "20", "syncLimit": "10", **members, **words}
    return server


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes | None] = []

    def is_read() -> bool:
        found.extend(one.value() for one in consumer.consume(count, 0.2) if one.error() is None)
        return len(found) >= count

    try:
        until(is_read, f"{count} records")
    finally:
        consumer.close()
    return found


@pytest.mark.by_day(1)
def test_the_compose_file_makes_the_cluster_that_it_promises(tmp_path: Path) -> None:
    try:
        find_jars()
    except ZooKeeperMissing as error:
        pytest.skip(str(error))
    places = Loopback()
    with ExitStack() as stack:
        servers = [zookeeper(number, places, tmp_path) for number in (1, 2, 3)]
        for server in servers:
            stack.callback(server.kill)
            server.launch()
        brokers = {}
        for number in (1, 2, 3):
            service = f"kafka{number}"
            folder = tmp_path / service
            folder.mkdir()
            variables = {**image_variables(), **environment_of(service)}
            variables = {name: places.translated(value, service) for name, value in variables.items()}
            variables["KAFKA_LOG_DIRS"] = variables["KAFKA_LOG_DIRS"].replace(DATA, str(folder))
            command = [sys.executable, "-m", "gregor.broker", *json.loads(command_of("CMD"))]
            # `depends_on` waits for no service to be ready: the brokers wait for ZooKeeper themselves.
            brokers[number] = stack.enter_context(Container(command, clean_environment() | variables, folder))
        for number, broker in brokers.items():
            for port in (9092, 10_000 * number + 9092):
                broker.until_serving(places.port(f"kafka{number}", port))

        outside = ",".join(f"127.0.0.1:{places.port(f'kafka{number}', 10_000 * number + 9092)}" for number in brokers)
        inside = ",".join(f"127.0.0.1:{places.port(f'kafka{number}', 9092)}" for number in brokers)
        admin = AdminClient({"bootstrap.servers": outside, "log_level": 0})
        shapes = {"greetings": (6, 3), "latest": (3, 3)}

        def shape(name: str) -> tuple[int, int]:
            # Of all topics: naming one that does not exist yet would create it, with the default partitions.
            found = admin.list_topics(timeout=TIMEOUT_S).topics.get(name)
            partitions = [] if found is None else found.partitions.values()
            return len(partitions), min((len(one.isrs) for one in partitions), default=0)

        until(lambda: {name: shape(name) for name in shapes} == shapes, "the topics with all replicas in sync")
        policy = ConfigResource(ConfigResource.Type.TOPIC, "latest")
        found = admin.describe_configs([policy])[policy].result(TIMEOUT_S)
        assert found["cleanup.policy"].value == "compact"
        for bootstrap, wanted in ((outside, outside), (inside, inside)):
            known = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=TIMEOUT_S).brokers
            assert sorted(known) == [1, 2, 3]
            assert {f"{one.host}:{one.port}" for one in known.values()} == set(wanted.split(","))

        producer = Producer({"bootstrap.servers": outside, "acks": "all", "log_level": 0})
        for number in range(20):
            producer.produce("greetings", b"%d" % number, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        servers[0].kill()
        assert brokers[1].stop() == 0, brokers[1].output.read_text()
        assert read(inside, "greetings", 0, 20) == [b"%d" % number for number in range(20)]


def command_of(instruction: str) -> str:
    found = re.search(rf"(?m)^{instruction} (.*)$", DOCKERFILE)
    assert found is not None
    return found[1]


def build_context(folder: Path) -> None:
    """Copy the files that the ignore file lets into the image."""
    lines = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    for line in lines:
        if line.startswith("!"):
            source = ROOT / line[1:]
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / line[1:])
    for path in list(folder.rglob("__pycache__")):
        shutil.rmtree(path)


@pytest.mark.by_day(1)
def test_the_steps_of_the_dockerfile_make_a_broker_in_an_empty_environment(tmp_path: Path) -> None:
    source, home, image = tmp_path / "src", tmp_path / "home", tmp_path / "image"
    source.mkdir()
    home.mkdir()
    build_context(source)
    venv.create(image, with_pip=True)
    empty = {"PATH": f"{image / 'bin'}:{os.defpath}", "HOME": str(home), "LANG": "C.UTF-8"}
    steps = [step.strip() for step in command_of("RUN").split("&&")]
    assert command_of("COPY") == ". /src"
    assert [step.split()[0] for step in steps] == ["pip", "rm", "useradd", "install"]
    install = [word.replace("/src", str(source)) for word in steps[0].split()]
    subprocess.run(install, cwd=home, env=empty, check=True, capture_output=True, timeout=240)
    shutil.rmtree(source)

    port = free_port()
    variables = {name: value.replace(DATA, str(home)) for name, value in image_variables().items()}
    assert variables["KAFKA_PORT"] == command_of("EXPOSE")
    variables |= {"KAFKA_PORT": str(port), "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}"}
    (name,) = json.loads(command_of("ENTRYPOINT"))
    command = [str(image / "bin" / name), *json.loads(command_of("CMD"))]
    with Container(command, {**empty, **variables}, home) as broker:
        broker.until_serving(port)
        producer = Producer({"bootstrap.servers": f"localhost:{port}", "log_level": 0})
        producer.produce("greetings", b"hello")
        assert producer.flush(TIMEOUT_S) == 0
        assert read(f"localhost:{port}", "greetings", 0, 1) == [b"hello"]
        assert command_of("STOPSIGNAL") == "SIGTERM"
        assert broker.stop() == 0, broker.output.read_text()
    assert (home / "data" / "greetings-0").is_dir()
