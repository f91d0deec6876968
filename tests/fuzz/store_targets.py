"""Targets that read much at once: the store of the metadata tree, and `gregor verify` on a data folder."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable
from functools import cache
from pathlib import Path
from typing import Any

from gregor.replication.store import nodes
from gregor.replication.store.embedded import EmbeddedStore
from gregor.replication.store.metadata_store import Create, StoreFailed
from gregor.storage.folders.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    format_offsets,
)
from gregor.storage.folders.identity import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    MetaProperties,
    format_meta_properties,
    format_partition_metadata,
)
from gregor.storage.verify.folder import Totals, read_folder, verify_folder
from tests.fuzz.runner import Seed, Target
from tests.fuzz.storage_targets import FOLDER, TOPIC_ID, good_folder
from tests.storage.logs import NOW_MS
from tests.storage.memory_files import MemoryFiles

DATA_FOLDER = FOLDER.rpartition("/")[0]


def targets() -> list[Target]:
    stores = Stores()
    return [
        Target("metadata stores", stores.open, store_seeds, (StoreFailed,), weight=1, close=stores.close),
        Target("verify", verify, verify_seeds, (), weight=1),
    ]


# -- the metadata store ------------------------------------------------------------------------------------------------


class Stores:
    """Files are made in memory where the system has such a place."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Awaitable[Any]) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def path(self) -> Path:
        """Where nothing is yet."""
        if self._folder is None:
            memory = Path("/dev/shm")
            self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        folder = Path(self._folder.name)
        for left in folder.iterdir():
            left.unlink()
        return folder / "store.sqlite"

    def open(self, context: None, data: bytes) -> None:
        """A store that opens can be walked through, written and closed."""
        path = self.path()
        path.write_bytes(data)
        store = EmbeddedStore(str(path))
        self.run(store.start())
        try:
            self.run(walk(store, "/"))
            self.run(store.multi([Create("/written", b"data")]))
        finally:
            self.run(store.close())

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def make(self) -> bytes:
        """A good file with the nodes of a small cluster."""
        path = self.path()
        store = EmbeddedStore(str(path))
        self.run(store.start())
        made = [Create(one, b"") for one in sorted(parents_of(nodes.PERSISTENT_PATHS))]
        for number in range(20):
            topic = nodes.TopicAssignment(bytes([1, number] * 8), {0: nodes.ReplicaAssignment((0,))})
            made.append(Create(nodes.topic_path(f"topic-{number}"), nodes.encode_topic(topic)))
        self.run(store.multi(made))
        self.run(store.close())
        return path.read_bytes()


def parents_of(paths: tuple[str, ...]) -> set[str]:
    """The paths and all above them, but for the root."""
    found = set()
    for path in paths:
        parts = path.split("/")
        found |= {"/".join(parts[:end]) for end in range(2, len(parts) + 1)}
    return found


async def walk(store: EmbeddedStore, path: str) -> None:
    for name in await store.children(path):
        child = f"{path.rstrip('/')}/{name}"
        found = await store.get(child)
        assert found is None or isinstance(found[0], bytes)
        await walk(store, child)


@cache
def store_seeds() -> list[Seed]:
    stores = Stores()
    try:
        return [(None, stores.make())]
    finally:
        stores.close()


# -- verify ------------------------------------------------------------------------------------------------------------


@cache
def good_files() -> dict[str, bytes]:
    """All files of a data folder with one partition."""
    offsets = format_offsets({("orders", 0): 10})
    beside = {
        META_PROPERTIES_FILE: format_meta_properties(MetaProperties(0, 0, "XoSDzFq8S1y5vX6Jkq2v6A"), NOW_MS),
        **dict.fromkeys((RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE), offsets),
    }
    inside = {**good_folder(), PARTITION_METADATA_FILE: format_partition_metadata(TOPIC_ID)}
    return {f"{DATA_FOLDER}/{name}": data for name, data in beside.items()} | {
        f"{FOLDER}/{name}": data for name, data in inside.items()
    }


def verify_seeds() -> list[Seed]:
    return list(good_files().items())


def verify(path: str, data: bytes) -> None:
    """Every error is a finding."""
    files = MemoryFiles()
    files.make_directory(DATA_FOLDER)
    files.make_directory(FOLDER)
    for name, content in {**good_files(), path: data}.items():
        files.write_atomically(name, content)
    findings: list[str] = []
    totals = Totals()
    report = read_folder(files, DATA_FOLDER, lambda found: findings.append(str(found)))
    for progress in verify_folder(files, report, lambda found: findings.append(str(found)), totals, records=True):
        assert progress.done_bytes >= 0
    assert totals.partitions == 1
    assert len(findings) < 200
