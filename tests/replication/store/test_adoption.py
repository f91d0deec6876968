"""Adoption: the folders that become topics, and the contents of their nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.turns import run_all
from gregor.replication.store import nodes
from gregor.replication.store.adoption import adopt
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.nodes import PartitionState, ReplicaAssignment, TopicAssignment
from gregor.replication.store.registration import make_persistent_nodes
from gregor.storage.log.state import LogOffsets
from tests.replication.fakes import on_loop

ID, OTHER_ID = b"i" * 16, b"o" * 16


@dataclass
class Found:
    topic: str
    partition: int
    topic_id: bytes = ID
    epoch: int | None = None
    cleaned_offset: int | None = None

    @property
    def offsets(self) -> LogOffsets:
        offsets = LogOffsets(0, 0, 0)
        offsets.mark_cleaned_to(self.cleaned_offset)
        return offsets

    def latest_epoch(self) -> int | None:
        return self.epoch


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    await make_persistent_nodes(store)
    return store


async def topic_of(store: EmbeddedStore, name: str) -> TopicAssignment | None:
    found = await store.get(nodes.topic_path(name))
    return None if found is None else run_all(nodes.decode_topic(name, found[0]))


async def state_of(store: EmbeddedStore, name: str, index: int) -> PartitionState | None:
    found = await store.get(nodes.state_path(name, index))
    return None if found is None else nodes.decode_state(found[0])


@on_loop
async def test_unknown_folders_become_a_topic_that_continues_with_their_epoch(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert await adopt(store, 4, [Found("t", 2, epoch=7), Found("t", 0)], LoopGate()) == [("t", 0), ("t", 2)]
    mine = ReplicaAssignment((4,))
    # Partition 1 lay elsewhere: it is there again, and empty.
    assert await topic_of(store, "t") == TopicAssignment(ID, {0: mine, 1: mine, 2: mine})
    assert await state_of(store, "t", 2) == PartitionState(4, 7, (4,), 0)
    assert await state_of(store, "t", 0) == PartitionState(4, 0, (4,), 0)
    assert await state_of(store, "t", 1) is None
    assert await adopt(store, 4, [Found("t", 2, epoch=7), Found("t", 0)], LoopGate()) == []
    # More of the same topic.
    assert await adopt(store, 4, [Found("t", 2), Found("t", 3)], LoopGate()) == [("t", 3)]
    topic = await topic_of(store, "t")
    assert topic is not None and sorted(topic.partitions) == [0, 1, 2, 3]
    await store.close()


@on_loop
async def test_another_topics_folder_is_left_alone(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await adopt(store, 0, [Found("t", 0)], LoopGate())
    assert await adopt(store, 0, [Found("t", 1, OTHER_ID)], LoopGate()) == []
    await store.close()


@on_loop
async def test_offsets_topics_get_the_settings_they_need(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.create("/config/topics/kept", nodes.encode_config({"retention.ms": "5"}))
    found = [Found("__consumer_offsets", 0), Found("plain", 0), Found("kept", 0, bytes(16))]
    await adopt(store, 0, [*found, Found("cleaned", 0), Found("cleaned", 1, cleaned_offset=5)], LoopGate())

    async def config(name: str) -> dict[str, str]:
        found = await store.get(nodes.config_path("topics", name))
        assert found is not None
        return nodes.decode_config(found[0])

    assert (await config("__consumer_offsets"))["cleanup.policy"] == "compact"
    assert (await config("plain"), await config("kept")) == ({}, {"retention.ms": "5"})
    assert await config("cleaned") == {"cleanup.policy": "compact"}
    topic = await topic_of(store, "kept")
    assert topic is not None and topic.topic_id != bytes(16)
    await store.close()


@on_loop
async def test_folders_that_are_no_topic_are_ignored(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert await adopt(store, 0, [Found("__cluster_metadata", 0), Found("a b", 0)], LoopGate()) == []
    assert await store.children("/brokers/topics") == []
    await store.close()
