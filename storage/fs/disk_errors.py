"""The meaning of an error of the operating system for the disk below a data folder."""

from __future__ import annotations

import errno

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk has no room. That may pass, and nothing that was written is lost."""

BROKEN = frozenset(
    number
    for name in ("EIO", "EROFS", "ENODEV", "ENXIO", "ESTALE", "EUCLEAN", "EREMOTEIO", "ENOTCONN", "ENOMEDIUM")
    if (number := getattr(errno, name, None)) is not None
)
"""The device or the mount is at fault, not one file on it."""

OF_THE_PROCESS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})
"""A limit of this process or machine: the disk is as good as before."""

NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE})
"""There was no descriptor to open a file with. Of a sync this proves that it has not begun; one that fails for lack of
memory may have lost what it was to sync."""


def error_text(error: OSError, path: str = "") -> str:
    """Describe the error, with the file that it names, or else with `path`."""
    where = error.filename or path
    return f"{where}: {error.strerror or error}" if where else error.strerror or str(error)


def is_full(error: BaseException | None) -> bool:
    """Return whether the error, or the one that it was raised from, means that the disk has no room."""
    while error is not None:
        if isinstance(error, OSError):
            return error.errno in FULL
        error = error.__cause__
    return False
