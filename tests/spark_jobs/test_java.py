"""Which Java is found, how its version is read, and the message if no suitable one exists."""

from pathlib import Path

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.java import find_java, parse_version, require_java


def fake_java(folder: Path, banner: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=y\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_version_is_read_from_the_banner(banner: str, version: int | None) -> None:
    assert parse_version(banner) == version


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    in_home = fake_java(tmp_path / "home", "")
    in_path = fake_java(tmp_path / "path", "")
    path = str(in_path.parent)
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": path}) == str(in_home)
    assert find_java({"JAVA_HOME": "", "PATH": path}) == str(in_path)


def test_a_java_home_without_java_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    in_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    with pytest.raises(JobError, match=r"JAVA_HOME=.*nowhere has no Java"):
        require_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(in_path.parent)})


def test_missing_java_is_reported_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"(?s)Java 17 or newer; the PATH has no Java.*apt-get install openjdk-17"):
        require_java({"PATH": str(tmp_path)})


def test_old_java_is_reported_with_its_version(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(JobError, match=f"{java} is Java 11"):
        require_java({"JAVA_HOME": str(tmp_path), "PATH": "/bin"})


def test_java_without_a_version_is_quoted(tmp_path: Path) -> None:
    fake_java(tmp_path, "Unable to locate a Java Runtime")
    with pytest.raises(JobError, match="Unable to locate a Java Runtime"):
        require_java({"JAVA_HOME": str(tmp_path), "PATH": "/bin"})


def test_new_enough_java_is_returned(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "17.0.15" 2025-04-15')
    assert require_java({"JAVA_HOME": str(tmp_path), "PATH": "/bin"}) == str(java)
