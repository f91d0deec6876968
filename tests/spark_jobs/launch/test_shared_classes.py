"""The place of the archive of Spark's classes, and the options that use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.launch import shared_classes as subject


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    return home


@pytest.fixture
def java(tmp_path: Path) -> Path:
    java = tmp_path / "java"
    java.write_text("a program")
    return java


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, home: Path, java: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(subject, "spark_home", lambda: home)
    monkeypatch.setattr(subject, "find_java", lambda: str(java))
    monkeypatch.setattr(subject, "cache_folder", lambda: tmp_path / "cache")


def made(home: Path, java: Path, cache: Path) -> Path:
    file = subject.archive_file(home, str(java), cache)
    file.parent.mkdir(exist_ok=True)
    file.write_text("an archive")
    return file


def test_each_installation_has_its_own_archive(home: Path, java: Path, tmp_path: Path) -> None:
    first = subject.archive_file(home, str(java))
    assert subject.archive_file(home, str(java)) == first
    os.utime(java, (1, 1))
    of_newer_java = subject.archive_file(home, str(java))
    os.utime(home / "jars", (1, 1))
    of_newer_jars = subject.archive_file(home, str(java))
    assert len({first, of_newer_java, of_newer_jars}) == 3
    link = tmp_path / "link"
    link.symlink_to(java)
    assert subject.archive_file(home, str(link)) == of_newer_jars


def test_the_option_names_the_archive_that_is_there(home: Path, java: Path, tmp_path: Path) -> None:
    assert subject.archive_options() == ""
    file = made(home, java, tmp_path / "cache")
    assert subject.archive_options() == f"-XX:SharedArchiveFile={file} {subject.QUIET}"
    spaced = made(home, java, tmp_path / "a cache")
    assert subject.archive_options(tmp_path / "a cache") == f'"-XX:SharedArchiveFile={spaced}" {subject.QUIET}'
    os.utime(java, (1, 1))
    assert subject.archive_options() == ""


def test_no_option_without_spark_or_java(monkeypatch: pytest.MonkeyPatch, home: Path, java: Path) -> None:
    def missing() -> Path:
        raise JobError("PySpark is not installed")

    monkeypatch.setattr(subject, "spark_home", missing)
    assert subject.archive_options() == ""
    monkeypatch.setattr(subject, "spark_home", lambda: home)
    monkeypatch.setattr(subject, "find_java", lambda: None)
    assert subject.archive_options() == ""
    monkeypatch.setattr(subject, "find_java", lambda: str(java.with_name("gone")))
    assert subject.archive_options() == ""


def test_options_with_an_archive_keep_it(home: Path, java: Path, tmp_path: Path) -> None:
    assert subject.combined("", "") == ""
    assert subject.combined("-Xmx1g", "", "-Da=b") == "-Xmx1g -Da=b"
    option = f"-XX:SharedArchiveFile={made(home, java, tmp_path / 'cache')} {subject.QUIET}"
    assert subject.combined() == option
    assert subject.combined("-Xmx1g", "-Da=b") == f"{option} -Xmx1g -Da=b"
    for given in ("-XX:SharedArchiveFile=/other.jsa", "-Xshare:off", "-XX:+UseZGC"):
        assert subject.combined("-Xmx1g", given) == f"-Xmx1g {given}"


def test_archives_of_earlier_jars_in_the_same_place_are_removed(home: Path, java: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    earlier = made(home, java, cache)
    os.utime(home / "jars", (1, 1))
    of_another_java = made(home, java, cache)
    os.utime(java, (1, 1))
    now = made(home, java, cache)
    of_another_spark = cache / "classes-0123456789-0123456789-0123456789.jsa"
    of_another_spark.write_text("an archive")
    subject.remove_earlier(now)
    assert sorted(cache.iterdir()) == sorted([now, of_another_java, of_another_spark])
    assert not earlier.exists()


def test_no_archive_behind_a_folder_of_settings(
    home: Path, java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(home, java, tmp_path / "cache")
    (home / "conf").mkdir()
    assert subject.settings_folder(home, {}) is None and subject.archive_options() != ""
    (home / "conf" / "spark-defaults.conf").touch()
    assert subject.settings_folder(home, {}) == home / "conf" and subject.archive_options() == ""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "empty"))
    assert subject.archive_options() != ""
