"""The settings of a session that the user has not configured. The session itself: test_spark.py."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.spark_jobs import session
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import spark_home
from gregor.spark_jobs.launch import shared_classes


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[4,2]", 4),
        ("local[0]", 1),
        ("spark://host:7077", None),
        ("yarn", None),
        ("k8s://https://host", None),
        ("local-cluster[2,1,1024]", None),
    ],
)
def test_cores_of_a_master(master: str, cores: int | None) -> None:
    assert session.local_cores(master) == cores


def test_all_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert session.local_cores("local[*]") == 3


def test_a_local_master_gets_its_cores_as_shuffle_partitions_and_the_loopback() -> None:
    assert session.default_settings("local[2]") == {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }


def test_a_cluster_keeps_its_own_partitions_and_can_reach_the_driver() -> None:
    assert session.default_settings("spark://host:7077") == {"spark.ui.enabled": "false"}


def test_a_cluster_on_the_loopback_finds_the_driver_there() -> None:
    settings = session.default_settings("spark://127.0.0.1:7077")
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.sql.shuffle.partitions" not in settings
    assert not session.is_on_this_machine("spark://127.example.com:7077")


@pytest.mark.parametrize(
    "name",
    ["kafka.sasl.jaas.config", "kafka.ssl.keystore.password", "spark.my.token", "fs.s3a.access.key", "aws.secretKey"],
)
def test_names_of_secrets(name: str) -> None:
    assert re.search(session.REDACTION["spark.redaction.regex"], name)
    assert not re.search(session.REDACTION["spark.redaction.regex"], "kafka.bootstrap.servers")


@pytest.mark.parametrize(
    "option",
    [
        """kafka.sasl.jaas.config -> x.PlainLoginModule required username="u" password="hid,den)";""",
        """kafka.sasl.jaas.config=x.PlainLoginModule required username='u' password='hidden';""",
        "kafka.ssl.key.password -> hidden",
        '"sasl.password": "hid\\"den"',
    ],
)
def test_secrets_in_the_text_of_a_plan(option: str) -> None:
    text = f"Map(kafka.bootstrap.servers -> h:1, {option}, subscribe -> t), [key#1, value#2]"
    assert re.sub(session.REDACTION["spark.redaction.string.regex"], "***", text) == (
        "Map(kafka.bootstrap.servers -> h:1, ***, subscribe -> t), [key#1, value#2]"
    )


def test_restarted_queries_of_spark_4_1_use_the_reader_that_survives_them() -> None:
    reader = {"spark.sql.streaming.disabledV2MicroBatchReaders": session.PROVIDER_CLASS}
    assert session.reader_of_streams("4.1.1") == reader
    assert session.reader_of_streams("4.0.5") == session.reader_of_streams("4.2.0") == {}


class FakeSession:
    """A session with settings."""

    def __init__(self, version: str, settings: dict[str, str]) -> None:
        self.version = version
        self.settings = settings
        self.conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)


def test_sessions_of_connect_have_the_reader_that_their_server_needs() -> None:
    [key] = session.reader_of_streams("4.1.1")
    for version, settings, expected in (
        ("4.1.1", {}, {key: session.PROVIDER_CLASS}),
        ("4.1.1", {key: "of.the.User"}, {key: "of.the.User"}),
        ("4.2.0", {}, {}),
    ):
        fake: Any = FakeSession(version, settings)
        assert session.with_reader_of_streams(fake) is fake
        assert settings == expected


def variables_at_launch(monkeypatch: pytest.MonkeyPatch, **environ: str) -> dict[str, str | None]:
    """The variables that matter as the launch sees them."""
    names = (
        "SPARK_SUBMIT_OPTS",
        "SPARK_LOCAL_IP",
        "PYSPARK_PYTHON",
        "PYSPARK_SUBMIT_ARGS",
        "SPARK_CONF_DIR",
        "SPARK_HOME",
    )
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"XDG_CACHE_HOME": os.devnull, **environ}.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with session.launch_environment():
        seen = {name: os.environ.get(name) for name in names}
    assert dict(os.environ) == before
    return seen


def test_launch_is_quiet_and_local(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = variables_at_launch(monkeypatch)
    option = seen["SPARK_SUBMIT_OPTS"]
    assert option is not None and option.startswith("-Dlog4j2.configurationFile=file://")
    assert Path(option.partition("file://")[2]).is_file()
    assert seen["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_launch_keeps_the_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = variables_at_launch(
        monkeypatch,
        SPARK_SUBMIT_OPTS="-Dlog4j2.configurationFile=mine",
        PYSPARK_PYTHON="other-python",
        PYSPARK_SUBMIT_ARGS="--master yarn pyspark-shell",
    )
    assert seen["SPARK_SUBMIT_OPTS"] == "-Dlog4j2.configurationFile=mine"
    assert seen["PYSPARK_PYTHON"] == "other-python"
    assert seen["SPARK_LOCAL_IP"] is None
    (tmp_path / "log4j2.xml").touch()
    assert variables_at_launch(monkeypatch, SPARK_CONF_DIR=str(tmp_path))["SPARK_SUBMIT_OPTS"] is None


def test_other_options_of_the_jvm_are_kept_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    option = variables_at_launch(monkeypatch, SPARK_SUBMIT_OPTS="-Xshare:auto")["SPARK_SUBMIT_OPTS"]
    assert option is not None and option.startswith("-Xshare:auto -Dlog4j2.configurationFile=")


def test_the_archive_of_classes_is_used_if_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = tmp_path / "java"
    java.touch()
    monkeypatch.setattr(shared_classes, "find_java", lambda: str(java))
    file = shared_classes.archive_file(spark_home(), str(java))
    file.parent.mkdir()
    file.touch()
    archive = shared_classes.archive_options()
    assert archive.startswith("-XX:SharedArchiveFile=")
    assert session.executor_options("spark://127.0.0.1:7077", "-Xmx1g") == f"{archive} -Xmx1g"
    assert session.executor_options("spark://127.0.0.1:7077", "") == archive
    for elsewhere in ("local[2]", "spark://host:7077", "yarn"):
        assert session.executor_options(elsewhere, "-Xmx1g") == "-Xmx1g"
    option = variables_at_launch(monkeypatch, XDG_CACHE_HOME=str(tmp_path))["SPARK_SUBMIT_OPTS"]
    expected = f"-XX:SharedArchiveFile={file} {shared_classes.QUIET} -Dlog4j2.configurationFile="
    assert option is not None and option.startswith(expected)


def test_connect_server_of_the_settings_or_of_the_environment() -> None:
    assert session.remote_server({}, {}) is None
    assert session.remote_server({}, {"SPARK_REMOTE": "sc://a"}) == "sc://a"
    assert session.remote_server({"spark.remote": "sc://b:1"}, {"SPARK_REMOTE": "sc://a"}) == "sc://b:1"


def test_jobs_refuse_connect_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    session.require_no_connect({}, "top", "it is slow")
    with pytest.raises(JobError, match=r"(?s)top does not run through Spark Connect \(sc://b:1\): it is slow.*--m"):
        session.require_no_connect({"spark.remote": "sc://b:1"}, "top", "it is slow")


def test_server_that_cannot_be_used_is_named_with_the_remedy() -> None:
    with pytest.raises(JobError, match=r"'local' is not the address of a Spark Connect server; give sc://HOST"):
        session.open_session("test", {"spark.remote": "local"})
