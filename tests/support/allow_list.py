"""tests/compat/allow.txt, the list of foreign clients' tests that pass: its lines, and those removed on purpose.

A line is a node id from tests/compat. A test that is given up or renamed leaves a line `removed: NODE ID: REASON`.
"""

from __future__ import annotations

import pathlib
import subprocess

from tests.support.processes import ROOT

PATH = ROOT / "tests" / "compat" / "allow.txt"

_NAME = str(PATH.relative_to(ROOT))
_REMOVED = "removed: "


def allowed(text: str) -> set[str]:
    """Return the node ids of the tests that must pass."""
    return {line for line in _lines(text) if not line.startswith(_REMOVED)}


def removed(text: str) -> dict[str, str]:
    """Return the reasons by node id of the tests that were removed on purpose."""
    lines = [line.removeprefix(_REMOVED) for line in _lines(text) if line.startswith(_REMOVED)]
    return {name: reason for name, _, reason in (line.partition(": ") for line in lines)}


def lost(history: str, text: str) -> set[str]:
    """Return the node ids that `history`, a log with patches, ever added and that `text` neither lists nor gives up."""
    added = "\n".join(line[1:] for line in history.splitlines() if line.startswith("+") and not line.startswith("+++"))
    return allowed(added) - allowed(text) - set(removed(text))


def history(root: pathlib.Path = ROOT) -> str | None:
    """Return all patches of the list that this checkout knows of, also those of merges; None outside a git checkout. A
    shallow clone knows the newest lines only."""
    # By default git leaves out the patches of merges, and a branch of which a merge has kept nothing.
    command = ["git", "log", "-p", "--full-history", "--diff-merges=first-parent", "--format=", "--", _NAME]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return None if done.returncode else done.stdout


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
