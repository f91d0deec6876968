"""`gregor spark archive`: its steps, its failures, and a session whose JVM uses the archive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.launch import archive as subject
from tests.support.processes import clean_environment

SESSION = """
from gregor.spark_jobs.session import open_session
spark = open_session("archive")
print(open(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read())
spark.stop()
"""


class Steps:
    """Writes what the steps would, and has their command lines; the step of that number fails."""

    def __init__(self, failing: int | None = None) -> None:
        self.commands: list[list[str]] = []
        self.failing = failing

    def __call__(self, command: list[str], timeout_s: int) -> tuple[int, str]:
        self.commands.append(command)
        if len(self.commands) == self.failing:
            return 3, "\n".join(["a trace"] * 9 + ["no space is left\n"])
        if len(self.commands) == 1:
            (Path(command[-1]) / subject.CLASS_PATH).write_text("/spark/jars/a.jar:/spark/jars/b.jar")
        else:
            (option,) = (word for word in command if word.startswith("-XX:SharedArchiveFile="))
            Path(option.partition("=")[2]).write_text("an archive")
        return 0, ""


def test_classes_are_recorded_and_archived(tmp_path: Path) -> None:
    file, steps = tmp_path / "cache" / "classes-a-b-c.jsa", Steps()
    subject.make_archive(file, "/bin/java", steps)
    assert file.read_text() == "an archive"
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    record, dump = steps.commands
    assert record[:3] == [sys.executable, "-m", "gregor.spark_jobs.launch.archive"]
    assert dump[:2] == ["/bin/java", "-Xshare:dump"]
    assert dump[-2:] == ["-cp", "/spark/jars/a.jar:/spark/jars/b.jar"]
    assert f"-XX:SharedClassListFile={record[-1]}/classes.list" in dump


@pytest.mark.parametrize(("failing", "step"), [(1, "recorded"), (2, "archived")])
def test_a_failed_step_leaves_nothing_and_is_reported(failing: int, step: str, tmp_path: Path) -> None:
    file = tmp_path / "classes-a-b-c.jsa"
    with pytest.raises(JobError) as caught:
        subject.make_archive(file, "/bin/java", Steps(failing))
    trace = "    a trace\n" * 4
    assert str(caught.value) == f"Spark's classes could not be {step}: exit code 3\n{trace}    no space is left"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(JobError) as caught:
        subject.make_archive(tmp_path / "cache" / "classes-a-b-c.jsa", "/bin/java", Steps())
    assert str(caught.value) == (
        f"the archive of Spark's classes cannot be stored in {tmp_path / 'cache'}: File exists; "
        "set XDG_CACHE_HOME to use another folder"
    )


def test_a_folder_of_settings_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(subject, "require_java", lambda: "/bin/java")
    with pytest.raises(JobError, match=f"^{tmp_path} has settings of Spark and precedes its jars"):
        subject.main([])


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        subject.main(["--fast"])
    assert end.value.code == 2
    assert "unrecognized arguments: --fast" in capsys.readouterr().err


@pytest.mark.jvm
@pytest.mark.very_slow
def test_a_session_uses_the_archive(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], env=clean_environment(), cwd=tmp_path, capture_output=True, text=True,
            timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    option, *_ = run("-m", "gregor.spark_jobs.cli", "archive").split()
    assert option.startswith("-XX:SharedArchiveFile=")
    assert option.partition("=")[2] in run("-c", SESSION)
