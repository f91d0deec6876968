"""TopicConfigs: when nodes are read, the effects of a change, and settings that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs import turns as turns_of_loop
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.replication.store import nodes
from gregor.replication.store.change_notices import CHANGE_KEPT_MS
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import Create, Set, StoreFailed
from gregor.replication.store.registration import make_persistent_nodes
from gregor.replication.store.topic_configs import TopicConfigs
from tests.replication.fakes import HandClock, on_loop

ID, OTHER_ID = b"i" * 16, b"o" * 16


class Others:
    """Another task on the loop, whose turns are counted."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    def end(self) -> None:
        self._task.cancel()


class Subject:
    async def start(self, folder: Path) -> Subject:
        self.clock = HandClock()
        self.store = EmbeddedStore(str(folder / FILE_NAME))
        await self.store.start()
        await make_persistent_nodes(self.store)
        self.broker = BrokerConfig({})
        self.tasks: list[asyncio.Task[None]] = []
        self.told: list[str] = []
        await self.restart()
        return self

    async def restart(self) -> None:
        self.configs = TopicConfigs(self.store, self.broker, 3, self._spawn, self.clock, LoopGate())
        self.configs.on_topics_changed.append(self._tell)
        self.configs.on_broker_changed.append(lambda: self.told.append("broker"))
        await self.configs.start()

    def _tell(self, topics: Collection[str]) -> Iterable[None]:
        self.told.extend(sorted(topics))
        return ()

    def _spawn(self, coroutine: Any) -> None:
        self.tasks.append(asyncio.ensure_future(coroutine))

    async def write(self, entity: str, data: bytes, notice: bytes | None = None) -> None:
        """As a tool does it: the node, then the notice."""
        path = f"/config/{entity}"
        known = await self.store.exists(path) is not None
        await self.store.multi(
            [
                Set(path, data) if known else Create(path, data),
                Create(nodes.CONFIG_CHANGE_PREFIX, notice or nodes.encode_config_change(entity), sequential=True),
            ]
        )
        while self.tasks:
            await self.tasks.pop(0)


@on_loop
async def test_topics_are_read_on_first_use_and_again_when_notified(tmp_path: Path) -> None:
    subject = await Subject().start(tmp_path)
    configs = subject.configs
    await subject.store.create("/config/topics/t", nodes.encode_config({"retention.ms": "5"}))
    default = configs.log_config("t")
    assert default.retention_ms == 604_800_000
    await configs.ensure([("t", ID), ("plain", ID)])
    assert configs.log_config("t").retention_ms == 5
    assert configs.overrides("t") == {"retention.ms": "5"}
    assert configs.log_config("plain") is default
    await subject.write("topics/t", nodes.encode_config({"retention.ms": "6"}))
    assert (configs.log_config("t").retention_ms, subject.told) == (6, ["t"])
    # Written, but to the same effect; and a topic that is not used here.
    await subject.write("topics/t", nodes.encode_config({"retention.ms": "6"}))
    await subject.write("topics/stranger", nodes.encode_config({"retention.ms": "7"}))
    assert subject.told == ["t"]
    # Tools before 0.10 name the entity in two fields.
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    await subject.write("topics/t", nodes.encode_config({}), old)
    assert (configs.log_config("t"), subject.told) == (default, ["t", "t"])
    configs.forget("t")
    assert configs.overrides("t") == {}
    await subject.store.close()


@on_loop
async def test_settings_of_a_deleted_topic_do_not_count_for_the_next_one_of_its_name(tmp_path: Path) -> None:
    """Its deletion need not be received: this broker may have read the settings again while it was under way."""
    subject = await Subject().start(tmp_path)
    await subject.store.create("/config/topics/t", nodes.encode_config({"retention.ms": "1000"}))
    await subject.configs.ensure([("t", ID)])
    await subject.store.delete("/config/topics/t")
    await subject.store.create("/config/topics/t", nodes.encode_config({"retention.ms": "2000"}))
    await subject.configs.ensure([("t", ID)])
    assert subject.configs.log_config("t").retention_ms == 1000, "read once for each topic"
    await subject.configs.ensure([("t", OTHER_ID)])
    assert subject.configs.log_config("t").retention_ms == 2000
    assert subject.told == []
    await subject.store.close()


@on_loop
async def test_bad_settings_are_left_out_and_the_rest_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    subject = await Subject().start(tmp_path)
    bad = {"retention.ms": "5", "nonsense": "1", "segment.bytes": "many"}
    await subject.store.create("/config/topics/t", nodes.encode_config(bad))
    await subject.store.create("/config/topics/u", b"not json")
    await subject.configs.ensure([("t", ID), ("u", ID)])
    assert subject.configs.log_config("t").retention_ms == 5
    assert subject.configs.log_config("u") == subject.configs.log_config("other")
    assert len(caplog.records) == 3
    await subject.write("topics/t", b"{}", b"not json either")
    await subject.store.close()


@on_loop
async def test_dynamic_broker_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    subject = await Subject().start(tmp_path)
    await subject.configs.ensure([("t", ID)])
    await subject.write("brokers/<default>", nodes.encode_config({"log.retention.ms": "9", "log.cleaner.threads": "2"}))
    assert subject.configs.log_config("t").retention_ms == 9
    assert subject.broker["log.cleaner.threads"] == 2
    assert subject.told == ["broker", "t"]
    await subject.write("brokers/3", nodes.encode_config({"log.retention.ms": "10"}))
    assert subject.configs.log_config("t").retention_ms == 10
    # Settings of another broker have no effect here; a broker setting that is no default of topics changes no topic.
    subject.told.clear()
    await subject.write("brokers/4", nodes.encode_config({"log.retention.ms": "11"}))
    assert subject.told == []
    await subject.write("brokers/3", nodes.encode_config({"log.retention.ms": "10", "log.cleaner.threads": "3"}))
    assert subject.told == ["broker"]
    # A value that is refused is left out, with a line in the log; the others count.
    await subject.write("brokers/3", nodes.encode_config({"log.retention.ms": "soon", "log.cleaner.threads": "4"}))
    assert subject.configs.log_config("t").retention_ms == 9
    assert subject.broker["log.cleaner.threads"] == 4
    assert len(caplog.records) == 1
    await subject.store.close()


@on_loop
async def test_other_tasks_have_turns_while_hundreds_of_topics_get_new_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_of_loop, "TURN_S", -1.0)  # time is up after each
    subject = await Subject().start(tmp_path)
    topics = [f"t{number}" for number in range(300)]
    parents = [Create("/config/topics/" + topic, nodes.encode_config({"retention.bytes": "7777"})) for topic in topics]
    await subject.store.multi(parents)
    await subject.configs.ensure((topic, ID) for topic in topics)
    others = Others()
    for change, retention_ms in enumerate((9, 10)):
        subject.told.clear()
        others.turns = 0
        subject.broker.update_dynamic({}, {"log.retention.ms": str(retention_ms)})
        subject.configs.broker_changed()
        if change == 0:
            # The second of two changes finds the first one half done.
            subject.broker.update_dynamic({}, {"log.retention.ms": "8"})
            subject.configs.broker_changed()
        while subject.tasks:
            await subject.tasks.pop(0)
        assert others.turns >= len(topics)
        found = {subject.configs.log_config(topic).retention_ms for topic in topics}
        assert found == {8 if change == 0 else retention_ms}
        assert {*subject.told} == {"broker", *topics}
    others.end()
    await subject.store.close()


@on_loop
async def test_settings_made_before_the_start_are_in_effect_after_it(tmp_path: Path) -> None:
    subject = await Subject().start(tmp_path)
    await subject.write("brokers/<default>", nodes.encode_config({"log.retention.ms": "9"}))
    subject.broker = BrokerConfig({})
    await subject.restart()
    assert subject.configs.log_config("t").retention_ms == 9
    await subject.store.close()


@on_loop
async def test_notices_are_removed_after_a_while_and_not_acted_on_twice(tmp_path: Path) -> None:
    subject = await Subject().start(tmp_path)
    await subject.configs.ensure([("t", ID)])
    await subject.write("topics/t", nodes.encode_config({"retention.ms": "1"}))
    subject.clock.sleep(CHANGE_KEPT_MS)
    await subject.write("topics/t", nodes.encode_config({"retention.ms": "2"}))
    assert len(await subject.store.children(nodes.CONFIG_CHANGES)) == 2
    subject.clock.sleep(1)
    await subject.write("topics/t", nodes.encode_config({"retention.ms": "3"}))
    left = ["config_change_0000000001", "config_change_0000000002"]
    assert sorted(await subject.store.children(nodes.CONFIG_CHANGES)) == left
    assert subject.told == ["t", "t", "t"]
    await subject.store.close()


@on_loop
async def test_broken_settings_of_brokers_hold_up_neither_the_start_nor_other_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await Subject().start(tmp_path)
    await subject.write("brokers/<default>", nodes.encode_config({"log.retention.ms": "9"}))
    await subject.configs.ensure([("t", ID)])
    await subject.store.create("/config/topics/t", nodes.encode_config({"retention.ms": "5"}))
    await subject.store.create("/config/brokers/3", b"damaged")
    # Both are read at once.
    notices = [nodes.encode_config_change(entity) for entity in ("brokers/3", "topics/t")]
    await subject.store.multi([Create(nodes.CONFIG_CHANGE_PREFIX, one, sequential=True) for one in notices])
    while subject.tasks:
        await subject.tasks.pop(0)
    assert subject.configs.log_config("t").retention_ms == 5
    assert subject.configs.log_config("u").retention_ms == 9  # as it was
    assert "/config/brokers/3" in caplog.text
    await subject.restart()
    await subject.store.close()


@on_loop
async def test_change_that_could_not_be_read_is_read_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = await Subject().start(tmp_path)
    get_many = subject.store.get_many

    async def fail(paths: list[str]) -> Any:
        monkeypatch.setattr(subject.store, "get_many", get_many)
        raise StoreFailed("the connection is lost")

    monkeypatch.setattr(subject.store, "get_many", fail)
    with pytest.raises(StoreFailed):
        await subject.write("brokers/3", nodes.encode_config({"log.cleaner.threads": "2"}))
    assert subject.told == []
    await subject.write("brokers/4", nodes.encode_config({"log.cleaner.threads": "3"}))
    assert subject.told == ["broker"]
    assert subject.broker["log.cleaner.threads"] == 2
    await subject.store.close()


@on_loop
async def test_a_folder_of_notices_removed_by_hand_is_made_again_and_watched(tmp_path: Path) -> None:
    subject = await Subject().start(tmp_path)
    await subject.configs.ensure([("t", ID)])
    await subject.store.delete(nodes.CONFIG_CHANGES)
    while subject.tasks:
        await subject.tasks.pop(0)
    await subject.write("topics/t", nodes.encode_config({"retention.ms": "5"}))
    assert subject.told == ["t"]
    await subject.store.close()


@on_loop
async def test_the_settings_of_many_topics_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_of_loop, "TURN_S", -1.0)  # time is up after each
    subject = await Subject().start(tmp_path)
    names = [f"t{index}" for index in range(300)]
    texts = nodes.encode_config({"retention.ms": "5", "cleanup.policy": "compact"})
    await subject.store.multi([Create(f"/config/topics/{name}", texts) for name in names])
    others = Others()
    await subject.configs.ensure((name, ID) for name in names)
    others.end()
    assert others.turns >= len(names)
    assert all(subject.configs.log_config(name).retention_ms == 5 for name in names)
    await subject.store.close()
