"""The wheel's own Spark job, in an environment of its own beside foreign modules that are named like our packages."""

from __future__ import annotations

import pathlib
import subprocess
import sysconfig
import venv

import pytest

from gregor.spark_jobs.session import SHORT_JOB
from tests.spark_jobs.topics import Topics
from tests.support.check_wheel import build, copy_sources, environment_beside, run, write_foreign_modules

pytestmark = [pytest.mark.jvm, pytest.mark.compat]


@pytest.mark.by_day(1, group="programs of Spark")
@pytest.mark.very_slow
def test_installed_wordcount_runs_beside_foreign_modules(topics: Topics, tmp_path: pathlib.Path) -> None:
    """Spark finds the source that reads, and its module in the wheel, by itself; it writes through the connector."""
    wheel = build(copy_sources(tmp_path), tmp_path)
    programs = environment_with_libraries_of_this_one(tmp_path / "environment")
    run(str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps", str(wheel))
    elsewhere = tmp_path / "elsewhere"
    write_foreign_modules(elsewhere)
    source, target = topics.create(), topics.create()
    topics.produce(source, ["to be or not", "to be"])
    command = [str(programs / "gregor"), "spark", "wordcount", "-b", topics.bootstrap, "--topic", source, "--once"]
    command += [
        "--source",
        "gregor",
        "--sink",
        "topic",
        "--output-topic",
        target,
        "--checkpoint",
        str(tmp_path / "checkpoint"),
    ]
    environment = {**environment_beside(elsewhere), "SPARK_SUBMIT_OPTS": SHORT_JOB}
    done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert topics.last_values(target) == {"to": 2, "be": 2, "or": 1, "not": 1}
    where = "import gregor.spark_jobs.session as session; print(session.__file__)"
    imported = run(str(programs / "python"), "-c", where, beside=elsewhere)
    assert pathlib.Path(imported.strip()).is_relative_to(tmp_path / "environment")


def environment_with_libraries_of_this_one(folder: pathlib.Path) -> pathlib.Path:
    """Make an environment that imports PySpark and the rest from this one, but not gregor; return its programs.

    A path in a .pth file is searched for modules only: the .pth file of our editable installation there is not read.
    """
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    site = run(str(programs / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    pathlib.Path(site, "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return programs
