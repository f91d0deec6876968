"""Builds the wheel, installs it into an empty environment and uses it from another folder.

What an editable installation hides: packages or data files that the wheel lacks, a dependency that is not declared.
"""

from __future__ import annotations

import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
import zipfile

from tests.support.processes import answers_metadata, clean_environment, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]

SOURCES = ("broker", "config", "coordinator", "protocol", "replication", "spark_jobs", "storage")
NEEDED = ("build.txt", "config/server.properties", "protocol/messages.pyi", "spark_jobs/log4j2.properties")
START_TIMEOUT_S = 20.0


def build(folder: pathlib.Path) -> pathlib.Path:
    """The wheel of a copy of the sources: a build in place would pick up what an earlier one left in build/."""
    copy = folder / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy))
    [wheel] = folder.glob("*.whl")
    return wheel


def check_contents(wheel: pathlib.Path) -> None:
    """Every module and every data file, and nothing of the tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for name in SOURCES for path in (ROOT / name).rglob("*.py")}
    missing = sorted({f"gregor/{name}" for name in modules | set(NEEDED)} - names)
    odd = sorted(
        name for name in names if not name.startswith(("gregor/", "gregor-")) or name.startswith("gregor/tests/")
    )
    if missing or odd:
        sys.exit(f"the wheel lacks {missing}, and should not hold {odd}")


def install(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The `gregor` of a new environment."""
    venv.create(folder / "environment", with_pip=True)
    binaries = folder / "environment" / "bin"
    run(str(binaries / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return binaries / "gregor"


def use(gregor: pathlib.Path, folder: pathlib.Path) -> None:
    """Starts a broker, sends a record through it and stops it."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    port = free_port()
    log = folder / "broker.out"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [gregor, "start", "--override", f"listeners=PLAINTEXT://localhost:{port}"],
            cwd=elsewhere,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_metadata(port):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the installed broker did not start:\n{log.read_text()}")
            time.sleep(0.05)
        address = ("--bootstrap-server", f"localhost:{port}")
        run(str(gregor), "topics", "--create", "--topic", "greetings", *address)
        run(str(gregor), "console-producer", "--topic", "greetings", *address, stdin="hello\n")
        read = ("--topic", "greetings", "--partition", "0", "--offset", "earliest", "--max-messages", "1")
        printed = run(str(gregor), "console-consumer", *read, *address)
        if printed != "hello\n":
            sys.exit(f"the record came back as {printed!r}")
        server.send_signal(signal.SIGTERM)
        if code := server.wait(30):
            sys.exit(f"the broker ended with {code}:\n{log.read_text()}")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    if not (elsewhere / "gregor-data").is_dir():
        sys.exit("the data is not in ./gregor-data")


def run(*command: str, stdin: str = "") -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=clean_environment(), timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gregor-wheel-") as name:
        folder = pathlib.Path(name)
        wheel = build(folder)
        check_contents(wheel)
        use(install(wheel, folder), folder)
        print(f"{wheel.name}: built, installed alone, started, used, stopped")


if __name__ == "__main__":
    main()
