"""The broker that a module's tests share; each test uses topics and groups of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.broker.harness import Harness, running


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of logs are closed in the end
        with running(tmp_path_factory.mktemp("node")) as harness:
            yield harness


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync: no test here checks the state after a power cut."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A legal topic name for this test alone."""
    name: str = request.node.name
    return "".join(char if char.isalnum() or char in "._-" else "." for char in name)[:200]
