"""gregor.storage.fs.disk_errors: the meaning of errors of the operating system."""

from __future__ import annotations

import errno
import os

import pytest

from gregor.storage.fs.disk_errors import error_text, is_full


@pytest.mark.parametrize(
    ("error", "path", "text"),
    [
        (OSError(errno.EACCES, "Permission denied", "/data/x"), "", "/data/x: Permission denied"),
        (OSError(errno.EACCES, "Permission denied", "/data/x"), "/data", "/data/x: Permission denied"),
        (OSError(errno.EACCES, "Permission denied"), "/data", "/data: Permission denied"),
        (OSError(errno.EACCES, "Permission denied"), "", "Permission denied"),
        (OSError("no address fits"), "", "no address fits"),
        (OSError("no address fits"), "/data", "/data: no address fits"),
    ],
)
def test_the_file_is_named_once_and_then_the_reason(error: OSError, path: str, text: str) -> None:
    assert error_text(error, path) == text


def test_an_error_of_a_call_names_its_file(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "none")
    with pytest.raises(OSError) as caught:
        os.unlink(path)
    assert error_text(caught.value, "else") == f"{path}: {os.strerror(errno.ENOENT)}"


def test_a_full_disk_is_found_below_what_it_caused() -> None:
    full, other = OSError(errno.ENOSPC, "full"), ValueError("of something else")
    full.__cause__, caused = other, ValueError("cannot be written")
    caused.__cause__ = full
    assert is_full(full) and is_full(caused)
    assert not is_full(None) and not is_full(other) and not is_full(OSError(errno.EIO, "broken"))
