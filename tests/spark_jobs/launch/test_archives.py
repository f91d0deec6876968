"""The archives on the path of a worker: their directories are read once, whatever Spark does before each task."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path


def test_archive_that_was_forgotten_is_not_read_again_and_still_imports(tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first_of_archive.py", "")
        file.writestr("second_of_archive.py", "")
    program = f"""
        import importlib, sys, zipimport
        from gregor.spark_jobs.launch.archives import forget_archives
        sys.path.insert(0, {str(archive)!r})
        import first_of_archive
        read, original = [], zipimport._read_directory
        zipimport._read_directory = lambda archive: read.append(archive) or original(archive)
        importlib.invalidate_caches()
        assert read == [{str(archive)!r}], read
        forget_archives()
        importlib.invalidate_caches()
        import second_of_archive
        assert len(read) == 1, read
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
