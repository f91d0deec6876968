"""The Java client 4.4.0: the checks of 4.3.1, compiled against that release, and what 4.4 adds to the protocol.

4.4 sends ApiVersions 5 first; its newer versions of other requests are used where the broker serves them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.java_checks import compiled, run_checks
from tests.compat.test_java_client import CHECKS

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

RELEASE = "4.4.0"


@pytest.fixture(scope="module")
def results(bootstrap: str, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the program's result of each check: `PASS`, or the error."""
    classes = compiled(tmp_path_factory.mktemp("classes"))
    return run_checks("compat.Checks", bootstrap, unique("java-4-4"), classes=classes, version=RELEASE)


@pytest.mark.parametrize("check", CHECKS)
def test_java(results: dict[str, str], check: str) -> None:
    assert results.get(check, results[""]) == "PASS"
