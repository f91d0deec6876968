"""The connector's jars: fetched once, whole or not at all, with the resolver's reason when that fails."""

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gregor.spark_jobs import connector
from gregor.spark_jobs.connector import (
    ARTIFACT,
    CONNECTORS,
    cache_folder,
    connector_folder,
    connector_jars,
    connector_version,
    package,
)
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.java import require_java

VERSION = connector_version()
PACKAGE = package(VERSION)
NAMES = [f"{ARTIFACT}-{VERSION}.jar", "kafka-clients-3.9.0.jar"]


class FakeIvy:
    """Stands for the resolver's process: leaves jars in its folder, or fails with some output."""

    def __init__(self, code: int = 0, output: str = "", names: list[str] = NAMES) -> None:
        self.code, self.output, self.names = code, output, names
        self.calls: list[list[str]] = []
        self.settings = self.module = ""

    def __call__(self, command: list[str], folder: Path) -> tuple[int, str]:
        self.calls.append(command)
        self.settings = (folder / "settings.xml").read_text()
        self.module = (folder / "ivy.xml").read_text()
        (folder / "jars").mkdir()
        for name in self.names:
            (folder / "jars" / name).write_bytes(b"jar")
        return self.code, self.output


@pytest.mark.parametrize(
    ("spark", "version"),
    [("4.0.0", "4.0.0"), ("4.0.5", "4.0.0"), ("4.1.1", "4.1.1"), ("4.1.2", "4.1.1"), ("4.2.0.dev3", "4.2.0")],
)
def test_connector_has_the_minor_version_of_spark(spark: str, version: str) -> None:
    assert connector_version(spark) == version


@pytest.mark.parametrize("spark", ["3.5.6", "4.3.0", "5.0.0"])
def test_spark_without_a_known_connector_is_refused_with_the_remedy(spark: str) -> None:
    with pytest.raises(JobError, match=rf"Spark {spark}.*only for Spark 4\.0, 4\.1, 4\.2") as failure:
        connector_version(spark)
    assert "spark-submit --packages" in str(failure.value)
    assert "pip install 'pyspark==4.1.1'" in str(failure.value)


def test_without_spark_the_connector_is_that_of_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "installed_spark", lambda: None)
    assert connector_version() == "4.1.1"


def test_each_version_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = set()
    for spark, version in CONNECTORS.items():
        monkeypatch.setattr(connector, "installed_spark", lambda spark=spark: f"{spark}.0")
        ivy = FakeIvy()
        connector_jars("java", tmp_path, ivy)
        assert f'rev="{version}"' in ivy.module
        folders.add(connector_folder(tmp_path))
    assert {folder.name for folder in folders} == {f"{ARTIFACT}-{version}" for version in CONNECTORS.values()}
    assert set(tmp_path.iterdir()) == folders


def test_jars_are_fetched_once(tmp_path: Path) -> None:
    ivy = FakeIvy()
    first = connector_jars("java", tmp_path, ivy)
    assert [jar.name for jar in first] == sorted(NAMES)
    assert all(jar.read_bytes() == b"jar" for jar in first)
    assert connector_jars("java", tmp_path, ivy) == first
    assert len(ivy.calls) == 1
    assert ivy.calls[0][0] == "java"


def test_only_the_complete_folder_remains(tmp_path: Path) -> None:
    connector_jars("java", tmp_path, FakeIvy())
    assert list(tmp_path.iterdir()) == [connector_folder(tmp_path)]


def test_failure_names_the_reason_and_the_way_out_and_leaves_nothing(tmp_path: Path) -> None:
    report = (
        ":: resolving dependencies ::\n\t\tmodule not found: org.apache.spark#x;4.0.0\n"
        "\tServer access error at url central (java.net.UnknownHostException: central)\n"
        "\t\t:: org.apache.spark#x;4.0.0: not found\n"
    )
    with pytest.raises(JobError) as failure:
        connector_jars("java", tmp_path, FakeIvy(1, report, []))
    text = str(failure.value)
    assert "UnknownHostException: central" in text
    assert "org.apache.spark#x;4.0.0: not found" in text
    assert f"spark-submit --packages {PACKAGE}" in text
    assert "resolving dependencies" not in text
    assert list(tmp_path.iterdir()) == []


def test_success_without_the_connector_itself_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="could not be downloaded"):
        connector_jars("java", tmp_path, FakeIvy(0, "", ["kafka-clients-3.9.0.jar"]))


def test_another_process_that_was_faster_is_no_failure(tmp_path: Path) -> None:
    class Overtaken(FakeIvy):
        def __call__(self, command: list[str], folder: Path) -> tuple[int, str]:
            connector_jars("java", tmp_path, FakeIvy())
            return super().__call__(command, folder)

    assert [jar.name for jar in connector_jars("java", tmp_path, Overtaken())] == sorted(NAMES)
    assert list(tmp_path.iterdir()) == [connector_folder(tmp_path)]


def test_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(JobError, match="cannot store the Kafka connector"):
        connector_jars("java", blocked / "below", FakeIvy())


def test_resolver_asks_central_before_the_local_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", 'http://mirror.example/a&b"c')
    ivy = FakeIvy()
    connector_jars("java", tmp_path, ivy)
    resolvers = ElementTree.fromstring(ivy.settings).findall(".//ibiblio")
    assert [resolver.get("name") for resolver in resolvers] == ["central", "local"]
    assert resolvers[0].get("root") == 'http://mirror.example/a&b"c'
    dependency = ElementTree.fromstring(ivy.module).find(".//dependency")
    assert dependency is not None
    assert f"{dependency.get('org')}:{dependency.get('name')}:{dependency.get('rev')}" == PACKAGE


def test_cache_follows_the_desktop_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/gregor")
    monkeypatch.setenv("HOME", "/people/me")
    assert cache_folder({}) == Path("/people/me/.cache/gregor")


@pytest.mark.very_slow
@pytest.mark.jvm
def test_a_half_filled_local_repository_does_no_harm(tmp_path: Path) -> None:
    """A pom without its jar in the local Maven repository is what makes `spark.jars.packages` fail."""
    poms = tmp_path / "home" / ".m2" / "repository" / "org/apache/spark" / ARTIFACT / VERSION
    poms.mkdir(parents=True)
    (poms / f"{ARTIFACT}-{VERSION}.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>org.apache.spark</groupId><artifactId>{ARTIFACT}</artifactId><version>{VERSION}</version></project>"
    )

    def run(command: list[str], folder: Path) -> tuple[int, str]:
        command = [command[0], f"-Duser.home={tmp_path / 'home'}", *command[1:]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ), timeout=300)
        return done.returncode, done.stdout + done.stderr

    jars = {jar.name: jar.stat().st_size for jar in connector_jars(require_java(), tmp_path / "cache", run)}
    assert jars[f"{ARTIFACT}-{VERSION}.jar"] > 100_000
    assert any(name.startswith("kafka-clients-") and size > 1_000_000 for name, size in jars.items())
