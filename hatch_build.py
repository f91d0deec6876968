"""Lays out the links by which a checkout is imported under the one name `gregor` (an editable installation)."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINKS = ".links"
PARTS = ("__init__.py", "broker", "config", "coordinator", "protocol", "replication", "spark_jobs", "storage")


class LinksOfACheckout(BuildHookInterface):
    """`.links/gregor` for an editable installation, beside `.links/tests`; a real wheel needs neither."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            return
        links = Path(self.root, LINKS)
        package = links / "gregor"
        package.mkdir(parents=True, exist_ok=True)
        for name in PARTS:
            link(package / name, Path("../..") / name)
        if Path(self.root, "tests").is_dir():
            link(links / "tests", Path("../tests"))


def link(path: Path, target: Path) -> None:
    """Make `path` a symbolic link to `target`, whatever link was there before."""
    path.unlink(missing_ok=True)
    path.symlink_to(target, target_is_directory=target.suffix == "")
