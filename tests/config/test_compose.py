"""config/docker/docker-compose.yml and config/docker/Dockerfile: their variables make the cluster that they promise."""

from __future__ import annotations

import re

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.environment import Environment, TopicWish, read_environment
from tests.support.processes import ROOT

COMPOSE = (ROOT / "config" / "docker" / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "config" / "docker" / "Dockerfile").read_text()
DEFAULTS = dict(re.findall(r"(KAFKA_\w+)=(\S+)", re.sub(r"(?m)^#.*", "", DOCKERFILE)))


def service(name: str) -> str:
    found = re.search(rf"(?ms)^  {name}:\n(.*?)(?=^  ?\w|^\w|\Z)", COMPOSE)
    assert found is not None
    return found[1]


def environment(number: int) -> Environment:
    own = {
        name: value.strip('"')
        for name, value in re.findall(r"(?m)^      (KAFKA_\w+): (.*)$", service(f"kafka{number}"))
    }
    assert len(own) == 9
    return read_environment({**DEFAULTS, **own})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_broker_of_the_compose_file(number: int) -> None:
    found = environment(number)
    config = BrokerConfig(found.settings)
    assert found.warnings == config.warnings == []
    assert config.broker_id == number
    assert config["zookeeper.connect"] == "zoo1:2181,zoo2:2181,zoo3:2181"
    assert config.inter_broker_listener_name == "INSIDE"
    inside, outside = config.advertised_listeners
    assert (inside.host, inside.port) == (f"kafka{number}", 9092)
    # The port outside must be the published one, and be listened on within.
    assert f'ports: ["{outside.port}:{config.listeners[1].port}"]' in service(f"kafka{number}")
    assert outside.host == "localhost"
    assert config["min.insync.replicas"] < config["default.replication.factor"] == 3
    assert config.log_dirs[0].startswith("/var/lib/gregor/")
    assert found.topics == [TopicWish("greetings", 6, 3, None), TopicWish("latest", 3, 3, "compact")]


def test_ports_and_volumes_are_not_shared() -> None:
    ports = re.findall(r'ports: \["(\d+):', COMPOSE)
    assert len(set(ports)) == len(ports) == 3
    used = re.findall(r'"([\w-]+):/', COMPOSE)
    declared = re.findall(r"(?m)^  ([\w-]+):$", COMPOSE.partition("\nvolumes:")[2])
    assert sorted(used) == sorted(declared)


def test_the_image_alone_listens_on_every_network() -> None:
    config = BrokerConfig(read_environment(DEFAULTS).settings)
    assert [one.text for one in config.listeners] == ["PLAINTEXT://0.0.0.0:9092"]
    assert config.advertised_listeners[0].host == ""


def test_image_uses_the_environment() -> None:
    assert 'CMD ["start", "--env"]' in DOCKERFILE


def test_the_image_is_built_from_every_package() -> None:
    let_in = set(re.findall(r"(?m)^!(\w+)$", (ROOT / "config" / "docker" / "Dockerfile.dockerignore").read_text()))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert let_in == {*packages, "LICENSE"}
