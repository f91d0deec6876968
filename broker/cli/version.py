"""The output of `--version`, the same for `gregor` and each tool."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def version_line() -> str:
    """Return `gregor` and the installed version."""
    try:
        return f"gregor {version('gregor')}"
    except PackageNotFoundError:  # run from a checkout
        return "gregor, not installed"
