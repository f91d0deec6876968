"""The command line against the broker of the session, or against that of `--against HOST:PORT`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.broker.cli.tool import Tool


@pytest.fixture(autouse=True)
def hang_up_as_before() -> Iterator[None]:
    """`gregor start` ignores SIGHUP at first, and the processes that later tests start would inherit that."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="module")
def tool(bootstrap: str) -> Tool:
    return Tool(bootstrap)


@pytest.fixture
def topic_with(tool: Tool) -> Iterator[Callable[[Sequence[str]], str]]:
    """Create topics of two partitions with a record per key, whose values are v0, v1 and so on."""
    created = []

    def create(keys: Sequence[str]) -> str:
        name = f"cli-{time.time_ns()}-{len(created)}"
        tool.run("topics", "--create", "--topic", name, "--partitions", "2")
        created.append(name)
        lines = "".join(f"{key}\tv{number}\n" for number, key in enumerate(keys))
        tool.run("console-producer", "--topic", name, "--reader-property", "parse.key=true", stdin=lines)
        return name

    yield create
    for name in created:
        tool.run("topics", "--delete", "--topic", name, "--if-exists")
