"""A gregor broker of an earlier commit as a process, handled like one of this checkout.

Its packages are those at the top of that commit's tree, and are imported under their own names; libraries are those of
the running Python.
"""

from __future__ import annotations

import functools
import io
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

from tests.support.processes import ROOT, BrokerProcess

COMMIT = "b7848393f1af9b9375a63d84d829a8c745c5b71f"
"""The last one before everything was imported as gregor.<package>; it is older than transactions, the consumer protocol
and security."""


@functools.cache
def sources() -> pathlib.Path:
    """Return the folder that contains the commit's packages, extracted from the history of this checkout."""
    folder = ROOT / f".cache/gregor-{COMMIT[:12]}"
    if not folder.exists():
        archive = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, capture_output=True)
        if archive.returncode:
            raise RuntimeError(
                f"commit {COMMIT[:12]} is not in this checkout ({archive.stderr.decode().strip()});"
                " fetch the whole history: git fetch --unshallow"
            )
        folder.parent.mkdir(exist_ok=True)
        unfinished = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(unfinished, filter="data")
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            shutil.rmtree(unfinished)  # another test process was faster
    return folder


class EarlierGregor(BrokerProcess):
    """`python -m broker start` in the sources of that commit."""

    def __init__(self, folder: pathlib.Path, overrides: dict[str, str] | None = None, port: int | None = None) -> None:
        super().__init__(folder, overrides, port)
        self.working_folder = sources()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "broker", *super().command()[3:]]
