"""Small file systems of their own, which tests fill."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Make the folder, and mount a tmpfs of this size there. Skips the test where that is not possible."""
    folder.mkdir()
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("needs a tmpfs of its own: Linux")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs a tmpfs of its own: the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
