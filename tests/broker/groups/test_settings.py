"""GroupSettings: the layers of a group's settings, and when a change is in effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.groups.settings import GroupSettings, settings_of_all
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.coordinator.group.consumer.config import ConsumerGroupConfig, GroupConfigs
from gregor.replication.admin.configs import GROUPS, ConfigAdmin, replacement
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.nodes import encode_config
from gregor.replication.store.registration import make_persistent_nodes
from gregor.replication.store.topic_configs import TopicConfigs
from tests.replication.fakes import HandClock, on_loop

DEFAULTS = ConsumerGroupConfig(45_000, 5_000, 1_000)
NAME = "orders/2026 é"
"""A legal group id; its node has another name."""


class Subject:
    async def start(self, folder: Path, **settings: str) -> Subject:
        self.store = EmbeddedStore(str(folder / FILE_NAME))
        await self.store.start()
        await make_persistent_nodes(self.store)
        self.broker = BrokerConfig({key.replace("_", "."): value for key, value in settings.items()})
        self.tasks: list[asyncio.Task[None]] = []
        await self.restart()
        return self

    async def restart(self) -> None:
        self.configs = TopicConfigs(self.store, self.broker, 3, self.spawn, HandClock(), LoopGate())
        self.settings = GroupSettings(self.store, self.broker, self.configs)
        self.port: GroupConfigs = self.settings
        self.admin = ConfigAdmin(self.store, self.broker, 3, self.configs, LoopGate())
        await self.configs.start()
        await self.settings.start()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(coroutine))

    async def alter(self, name: str, **texts: str) -> None:
        edit = replacement({f"consumer.{key.replace('_', '.')}": text for key, text in texts.items()})
        await self.admin.alter(GROUPS, name, edit)

    async def settle(self) -> None:
        while self.tasks:
            await self.tasks.pop()


@on_loop
async def test_change_of_a_group_is_in_effect_when_it_is_answered(tmp_path: Path) -> None:
    subject = await Subject().start(tmp_path)
    assert subject.port.of(NAME) == DEFAULTS
    await subject.alter(NAME, session_timeout_ms="50000", assignment_interval_ms="0")
    assert subject.port.of(NAME) == ConsumerGroupConfig(50_000, 5_000, 0)
    assert subject.port.of("other") == DEFAULTS
    await subject.settle()
    await subject.restart()
    assert subject.port.of(NAME) == ConsumerGroupConfig(50_000, 5_000, 0)
    await subject.alter(NAME)
    assert subject.port.of(NAME) == DEFAULTS
    await subject.settle()
    await subject.store.close()


@on_loop
async def test_other_brokers_follow_by_the_notice(tmp_path: Path) -> None:
    subject = await Subject().start(tmp_path)
    other = GroupSettings(subject.store, subject.broker, subject.configs)
    admin = ConfigAdmin(
        subject.store,
        subject.broker,
        4,
        TopicConfigs(subject.store, subject.broker, 4, subject.spawn, HandClock(), LoopGate()),
        LoopGate(),
    )
    await admin.alter(GROUPS, NAME, replacement({"consumer.heartbeat.interval.ms": "6000"}))
    await asyncio.sleep(0)
    await subject.settle()
    assert subject.port.of(NAME) == other.of(NAME) == ConsumerGroupConfig(45_000, 6_000, 1_000)
    await subject.store.close()


@on_loop
async def test_settings_of_the_broker_lie_below_those_of_the_group(tmp_path: Path) -> None:
    subject = await Subject().start(tmp_path, group_consumer_session_timeout_ms="55000")
    await subject.alter("g", heartbeat_interval_ms="7000")
    assert subject.port.of("g") == ConsumerGroupConfig(55_000, 7_000, 1_000)
    edit = replacement({"group.consumer.assignment.interval.ms": "3000"})
    await subject.admin.alter("brokers", "", edit)
    assert subject.port.of("g") == ConsumerGroupConfig(55_000, 7_000, 3_000)
    assert subject.port.of("other") == ConsumerGroupConfig(55_000, 5_000, 3_000)
    await subject.settle()
    await subject.store.close()


@on_loop
async def test_stored_settings_outside_of_the_limits_are_clamped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = await Subject().start(tmp_path)
    await subject.alter("g", session_timeout_ms="60000")
    await subject.store.create(f"/config/{GROUPS}/broken", b"{")
    await subject.store.create(f"/config/{GROUPS}/odd", encode_config({"consumer.session.timeout.ms": "5000"}))
    await subject.settle()
    subject.broker = BrokerConfig({"group.consumer.max.session.timeout.ms": "50000"})
    with caplog.at_level(logging.WARNING):
        await subject.restart()
    assert subject.port.of("g") == ConsumerGroupConfig(50_000, 5_000, 1_000)
    assert subject.port.of("odd") == subject.port.of("broken") == DEFAULTS
    assert "at most group.consumer.max.session.timeout.ms, 50000, which is used instead" in caplog.text
    assert "settings of group broken cannot be decoded" in caplog.text
    await subject.store.delete(f"/config/{GROUPS}/g")
    await subject.settings.refresh(None)
    assert subject.port.of("g") == DEFAULTS
    await subject.store.close()


def test_names_of_assignors_and_of_the_policy() -> None:
    config = BrokerConfig(
        {
            "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform,range",
            "group.consumer.migration.policy": "Upgrade",
            "group.consumer.max.size": "7",
        }
    )
    settings = settings_of_all(config)
    assert (settings.assignors, settings.migration_policy, settings.max_size) == (("range", "uniform"), "upgrade", 7)
    assert settings.regex_refresh_interval_ms == 600_000
