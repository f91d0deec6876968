"""Jars by Maven coordinates: fetched once, whole or not at all, with the resolver's reason when that fails."""

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gregor.spark_jobs.connector import connector_package
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.packages import Package, cache_folder, package_folder, package_jars

PACKAGE = Package("the table format", "org.example", "tables_2.13", "1.2.0", "org.example.Tables")
NAMES = ["tables_2.13-1.2.0.jar", "common-3.9.0.jar"]


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


def test_jars_are_fetched_once(tmp_path: Path) -> None:
    ivy = FakeIvy()
    first = package_jars(PACKAGE, "java", tmp_path, ivy)
    assert [jar.name for jar in first] == sorted(NAMES)
    assert all(jar.read_bytes() == b"jar" for jar in first)
    assert package_jars(PACKAGE, "java", tmp_path, ivy) == first
    assert len(ivy.calls) == 1
    assert ivy.calls[0][0] == "java"


def test_only_the_complete_folder_remains(tmp_path: Path) -> None:
    package_jars(PACKAGE, "java", tmp_path, FakeIvy())
    assert list(tmp_path.iterdir()) == [package_folder(PACKAGE, tmp_path)]


def test_failure_names_the_reason_and_the_way_out_and_leaves_nothing(tmp_path: Path) -> None:
    report = (
        ":: resolving dependencies ::\n\t\tmodule not found: org.apache.spark#x;4.0.0\n"
        "\tServer access error at url central (java.net.UnknownHostException: central)\n"
        "\t\t:: org.apache.spark#x;4.0.0: not found\n"
    )
    with pytest.raises(JobError) as failure:
        package_jars(PACKAGE, "java", tmp_path, FakeIvy(1, report, []))
    text = str(failure.value)
    assert "UnknownHostException: central" in text
    assert "org.apache.spark#x;4.0.0: not found" in text
    assert "spark-submit --packages org.example:tables_2.13:1.2.0" in text
    assert "resolving dependencies" not in text
    assert list(tmp_path.iterdir()) == []


def test_success_without_the_package_itself_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(
        JobError, match=r"the table format \(org\.example:tables_2\.13:1\.2\.0\) could not be downloaded"
    ):
        package_jars(PACKAGE, "java", tmp_path, FakeIvy(0, "", ["common-3.9.0.jar"]))


def test_another_process_that_was_faster_is_no_failure(tmp_path: Path) -> None:
    class Overtaken(FakeIvy):
        def __call__(self, command: list[str], folder: Path) -> tuple[int, str]:
            package_jars(PACKAGE, "java", tmp_path, FakeIvy())
            return super().__call__(command, folder)

    assert [jar.name for jar in package_jars(PACKAGE, "java", tmp_path, Overtaken())] == sorted(NAMES)
    assert list(tmp_path.iterdir()) == [package_folder(PACKAGE, tmp_path)]


def test_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(JobError, match="cannot store the table format"):
        package_jars(PACKAGE, "java", blocked / "below", FakeIvy())


def test_resolver_asks_central_before_the_local_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", 'http://mirror.example/a&b"c')
    ivy = FakeIvy()
    package_jars(PACKAGE, "java", tmp_path, ivy)
    resolvers = ElementTree.fromstring(ivy.settings).findall(".//ibiblio")
    assert [resolver.get("name") for resolver in resolvers] == ["central", "local"]
    assert resolvers[0].get("root") == 'http://mirror.example/a&b"c'
    dependency = ElementTree.fromstring(ivy.module).find(".//dependency")
    assert dependency is not None
    assert f"{dependency.get('org')}:{dependency.get('name')}:{dependency.get('rev')}" == PACKAGE.coordinate


def test_cache_follows_the_desktop_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/gregor")
    monkeypatch.setenv("HOME", "/people/me")
    assert cache_folder({}) == Path("/people/me/.cache/gregor")


@pytest.mark.very_slow
@pytest.mark.jvm
def test_a_half_filled_local_repository_does_no_harm(tmp_path: Path) -> None:
    """A pom without its jar in the local Maven repository is what makes `spark.jars.packages` fail."""
    connector = connector_package()
    artifact, version = connector.artifact, connector.version
    poms = tmp_path / "home" / ".m2" / "repository" / "org/apache/spark" / artifact / version
    poms.mkdir(parents=True)
    (poms / f"{artifact}-{version}.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>org.apache.spark</groupId><artifactId>{artifact}</artifactId><version>{version}</version></project>"
    )

    def run(command: list[str], folder: Path) -> tuple[int, str]:
        command = [command[0], f"-Duser.home={tmp_path / 'home'}", *command[1:]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ), timeout=300)
        return done.returncode, done.stdout + done.stderr

    jars = {jar.name: jar.stat().st_size for jar in package_jars(connector, require_java(), tmp_path / "cache", run)}
    assert jars[f"{artifact}-{version}.jar"] > 100_000
    assert any(name.startswith("kafka-clients-") and size > 1_000_000 for name, size in jars.items())
