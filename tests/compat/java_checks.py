"""Runs a main class of java/ with the client of a release, and collects the result of each of its checks."""

from __future__ import annotations

import os
import pathlib
import subprocess

from tests.support.kafka import java_command, kafka_jars
from tests.support.processes import ROOT

SOURCES = sorted((ROOT / "tests/compat/java").glob("*.java"))
COMPILED_AGAINST = "4.3.1"
TIMEOUT_S = 300


def compiled(folder: pathlib.Path) -> pathlib.Path:
    """Compile all programs of java/ into the folder, and return it."""
    libraries = f"{kafka_jars(COMPILED_AGAINST)}/*"
    done = subprocess.run(
        ["javac", "-proc:none", "-cp", libraries, "-d", str(folder), *map(str, SOURCES)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return folder


def run_checks(main_class: str, *arguments: str, classes: pathlib.Path, version: str = "4.3.1") -> dict[str, str]:
    """Return the program's result of each check: `PASS`, or the error; under "" its whole output."""
    command = java_command(main_class, *arguments, version=version)
    command[command.index("-cp") + 1] += f"{os.pathsep}{classes}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    said = {}
    *lines, end = done.stdout.splitlines() or [""]
    for line in lines if end == "DONE" else [*lines, end]:
        verdict, _, rest = line.partition(" # ")[0].partition(" ")
        name, _, reason = rest.partition(": ")
        said[name] = reason or verdict
    said[""] = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return said
