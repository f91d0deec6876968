"""Build the wheel, install it into an empty environment and use it beside foreign modules of the same names.

An editable installation hides packages or data files that the wheel lacks, and a dependency that is not declared. In
the end the same environment gets an editable installation of the sources, which must be importable as well.
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
NEEDED = (
    "build.txt",
    "config/server.properties",
    "config/tables/no_effect.tsv",
    "protocol/messages.pyi",
    "spark_jobs/log4j2.properties",
)
SPARK_SOURCE = "pyspark_gregor.py"
"""The only module at the top level beside the package: Spark searches there for data sources."""
FOREIGN_PACKAGES = ("storage", "protocol")
"""The foreign ones are packages here, and single modules for the other names."""
START_TIMEOUT_S = 120.0
IMPORTS = "import gregor.broker.server, gregor.broker.wiring, gregor.config.broker, gregor.storage.log.log"


def copy_sources(folder: pathlib.Path) -> pathlib.Path:
    """Copy the sources into `folder`: a build in place would include the remains of an earlier one in build/."""
    copy = folder / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def build(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Build the wheel of `source` in `folder` and return its path."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source))
    [wheel] = folder.glob("*.whl")
    return wheel


def check_contents(wheel: pathlib.Path) -> None:
    """Require every module and every data file, no tests, and no top-level name but `gregor`, its metadata and the
    module in which Spark finds the data source."""
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for name in SOURCES for path in (ROOT / name).rglob("*.py")}
    modules.remove(f"spark_jobs/{SPARK_SOURCE}")
    missing = sorted({f"gregor/{name}" for name in modules | set(NEEDED)} - names)
    metadata = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    top = {name.partition("/")[0] for name in names}
    tests = sorted(name for name in names if name.startswith("gregor/tests/"))
    if missing or tests or top != {"gregor", SPARK_SOURCE, metadata}:
        sys.exit(f"the wheel lacks {missing}, should not hold {tests}, and has {sorted(top)} at its top level")


def install(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Install the wheel into a new environment and return that environment's folder of programs."""
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment" / "bin"
    run(str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return programs


def write_foreign_modules(folder: pathlib.Path) -> None:
    """Write what an application may have beside gregor: modules and packages named like ours, which fail on import."""
    for name in SOURCES:
        path = folder / name / "__init__.py" if name in FOREIGN_PACKAGES else folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise ImportError('the foreign {path.name} of {name} was imported')\n")


def environment_beside(folder: pathlib.Path) -> dict[str, str]:
    """Return an environment in which the modules in `folder` come first, for programs and for `python -c` alike."""
    return {**clean_environment(), "PYTHONPATH": str(folder)}


def use(programs: pathlib.Path, folder: pathlib.Path) -> None:
    """Start a broker, send a record through it and stop it, beside foreign modules that come first on the path."""
    gregor = programs / "gregor"
    elsewhere = folder / "elsewhere"
    write_foreign_modules(elsewhere)
    run(str(programs / "python"), "-c", IMPORTS, beside=elsewhere)
    port = free_port()
    log = folder / "broker.out"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [gregor, "start", "--override", f"listeners=PLAINTEXT://localhost:{port}"],
            cwd=elsewhere,
            env=environment_beside(elsewhere),
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
        run(str(gregor), "topics", "--create", "--topic", "greetings", *address, beside=elsewhere)
        run(str(gregor), "console-producer", "--topic", "greetings", *address, stdin="hello\n", beside=elsewhere)
        read = ("--topic", "greetings", "--partition", "0", "--offset", "earliest", "--max-messages", "1")
        printed = run(str(gregor), "console-consumer", *read, *address, beside=elsewhere)
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


def check_editable(programs: pathlib.Path, source: pathlib.Path, folder: pathlib.Path) -> None:
    """Put an editable installation of `source` in place of the wheel, and require that its modules are imported."""
    pip = (str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall")
    run(*pip, "--editable", str(source))
    show = f"{IMPORTS}; print(gregor.config.broker.__file__)"
    path = pathlib.Path(run(str(programs / "python"), "-c", show, beside=folder / "elsewhere").strip())
    if path.resolve() != (source / "config" / "broker.py").resolve():
        sys.exit(f"the editable installation imports {path}")


def run(*command: str, stdin: str = "", beside: pathlib.Path | None = None) -> str:
    """Run a command that must succeed, in the folder `beside` with its modules if given; return standard output."""
    env = clean_environment() if beside is None else environment_beside(beside)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=beside, env=env, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gregor-wheel-") as name:
        folder = pathlib.Path(name)
        source = copy_sources(folder)
        wheel = build(source, folder)
        check_contents(wheel)
        programs = install(wheel, folder)
        use(programs, folder)
        check_editable(programs, source, folder)
        print(f"{wheel.name}: built, installed alone, started, used, stopped; editable installation imported")


if __name__ == "__main__":
    main()
