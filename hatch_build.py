"""Lays out the links by which a checkout is imported under the one name `gregor` (an editable installation), and
records in a wheel the version and the commit that it was built from."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINKS = ".links"
BUILD_FILE = "build.txt"
SPARK_SOURCE = "pyspark_gregor.py"  # the module in which Spark finds the data source
PARTS = ("__init__.py", "broker", "config", "coordinator", "protocol", "replication", "spark_jobs", "storage")


class LinksOfACheckout(BuildHookInterface):
    """`.links/gregor` for an editable installation, beside `.links/tests` and the module that Spark looks for;
    `gregor/build.txt` for a real wheel."""

    record: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            self.record = Path(tempfile.mkdtemp()) / BUILD_FILE
            self.record.write_text(f"{self.metadata.version}\n{commit_of(self.root)}\n")
            build_data["force_include"] |= {
                str(self.record): f"gregor/{BUILD_FILE}",
                str(Path(self.root, "__init__.py")): "gregor/__init__.py",
                # Spark looks for data sources in modules at the top level whose name begins with `pyspark_`.
                str(Path(self.root, "spark_jobs", SPARK_SOURCE)): SPARK_SOURCE,
            }
            return
        links = Path(self.root, LINKS)
        package = links / "gregor"
        package.mkdir(parents=True, exist_ok=True)
        for name in PARTS:
            link(package / name, Path("../..") / name)
        link(links / SPARK_SOURCE, Path("../spark_jobs", SPARK_SOURCE))
        if Path(self.root, "tests").is_dir():
            link(links / "tests", Path("../tests"))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.record is not None:
            self.record.unlink()
            self.record.parent.rmdir()


def commit_of(root: str) -> str:
    """Return the commit of a checkout; `unknown` where the sources are no checkout, or there is no git."""
    try:
        done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True)
    except OSError:
        return "unknown"
    is_checkout = done.returncode == 0 and Path(root, ".git").exists()
    return done.stdout.strip() if is_checkout else "unknown"


def link(path: Path, target: Path) -> None:
    """Make `path` a symbolic link to `target`, whatever link was there before. A right one stays: it may be in use."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target, target_is_directory=target.suffix == "")
