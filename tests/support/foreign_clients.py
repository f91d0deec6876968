"""The clients of other languages that tests/compat runs: built on first use, into .cache.

As a program (`.ci/run`) it builds all of them, so that no test's time is spent on that.
"""

from __future__ import annotations

import functools
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

GO_SOURCES = ROOT / "tests/compat/go"
GO_PROGRAMS = ROOT / ".cache/go-clients"
NODE_SOURCES = ROOT / "tests/compat/node"
NODE_FOLDER = ROOT / ".cache/node-clients"
NODE_FILES = ("package.json", "package-lock.json")
MIN_GO = (1, 21)
"""From this version on Go downloads the release that go.mod names."""
BUILD_TIMEOUT_S = 600
RUN_TIMEOUT_S = 300


class NoToolchain(Exception):
    """The tools to build a client are missing; `str()` is the way to install them."""


@functools.cache
def go_program(name: str) -> pathlib.Path:
    """The program of tests/compat/go/<name>. Raises NoToolchain."""
    if shutil.which("go") is None:
        raise NoToolchain("needs Go: apt-get install golang-go")
    said = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < MIN_GO:
        raise NoToolchain(f"needs Go {MIN_GO[0]}.{MIN_GO[1]} or newer, this is {said.strip()}")
    GO_PROGRAMS.mkdir(parents=True, exist_ok=True)
    _build(["go", "build", "-o", str(GO_PROGRAMS) + "/", f"./{name}"], GO_SOURCES)
    return GO_PROGRAMS / name


@functools.cache
def node_modules() -> pathlib.Path:
    """A folder node_modules with what tests/compat/node/package-lock.json names. Raises NoToolchain."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NoToolchain("needs Node: apt-get install nodejs npm")
    installed = NODE_FOLDER / "node_modules"
    up_to_date = installed.is_dir() and all(
        (NODE_FOLDER / name).exists() and (NODE_FOLDER / name).read_bytes() == (NODE_SOURCES / name).read_bytes()
        for name in NODE_FILES
    )
    if not up_to_date:
        shutil.rmtree(NODE_FOLDER, ignore_errors=True)
        NODE_FOLDER.mkdir(parents=True)
        for name in NODE_FILES:
            shutil.copy(NODE_SOURCES / name, NODE_FOLDER)
        _build(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], NODE_FOLDER)
    return installed


def _build(command: list[str], folder: pathlib.Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def run_checks(command: list[str], environment: dict[str, str] | None = None) -> dict[str, str]:
    """Return the outcome of each check of a program, `PASS` or the failure; under "" its whole output."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, env=environment, stdin=subprocess.DEVNULL
    )
    said = {"": f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"}
    for line in done.stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, reason = rest.partition(": ")
        said[name] = reason or verdict
    return said


def or_skip(build: functools._lru_cache_wrapper[pathlib.Path], *arguments: str) -> pathlib.Path:
    """Return the result of `build`; without its toolchain the test is skipped, with the reason."""
    try:
        return build(*arguments)
    except NoToolchain as missing:
        pytest.skip(str(missing))


def main() -> int:
    """Builds everything there is a toolchain for."""
    programs = ("franz", "sarama", "franzcopier", "saramacopier", "secured", "lag")
    for build in (*(functools.partial(go_program, name) for name in programs), node_modules):
        try:
            print(f"built {build().relative_to(ROOT)}")
        except NoToolchain as missing:
            print(missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
