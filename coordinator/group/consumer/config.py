"""The settings of consumer groups, typed, with Kafka's defaults, and the seams to the broker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gregor.coordinator.ports import NO_TOPICS, TopicView

INT_MAX = 2**31 - 1

VisibleTopics = Callable[[Collection[str]], Collection[str]]
"""Returns those of the topics that the sender of a request may describe: a regular expression matches no others."""


class ConsumerGroupConfig(NamedTuple):
    """The settings of one group: its own over those of the broker, clamped to the range that the broker allows.

    `session_timeout_ms`: consumer.session.timeout.ms over group.consumer.session.timeout.ms.
    `heartbeat_interval_ms`: consumer.heartbeat.interval.ms over group.consumer.heartbeat.interval.ms.
    `assignment_interval_ms`: consumer.assignment.interval.ms over group.consumer.assignment.interval.ms.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class GroupConfigs(Protocol):
    """The present settings of groups. `of` is called with every heartbeat."""

    def of(self, group_id: str) -> ConsumerGroupConfig: ...


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The settings of the broker for all groups.

    `assignors`: group.consumer.assignors, the default first. `max_size`: group.consumer.max.size. `migration_policy`:
    group.consumer.migration.policy. `regex_refresh_interval_ms`: group.consumer.regex.refresh.interval.ms.
    `gather_ms`: the time for which a new member waits for others that join, too; one target assignment is computed for
    all of them. 0: for each at once.
    """

    assignors: tuple[str, ...] = ("uniform", "range")
    max_size: int = INT_MAX
    migration_policy: str = "bidirectional"
    regex_refresh_interval_ms: int = 600_000
    gather_ms: int = 0


class DefaultConfigs:
    """Every group has the same settings."""

    def __init__(self, config: ConsumerGroupConfig = ConsumerGroupConfig()) -> None:  # noqa: B008 it is immutable
        self.config = config

    def of(self, group_id: str) -> ConsumerGroupConfig:
        return self.config


@dataclass(frozen=True, slots=True)
class ConsumerGroups:
    """The ports and settings that the coordinator needs for consumer groups."""

    topics: TopicView = NO_TOPICS
    configs: GroupConfigs = field(default_factory=DefaultConfigs)
    settings: ConsumerGroupSettings = ConsumerGroupSettings()
    are_served: Callable[[], bool] = lambda: True
    """Whether the finalised group.version allows consumer groups; else those that are loaded become classic ones."""
    admit_members: Callable[[], bool] = lambda: True
    """Whether members of the consumer protocol may join: not while a downgrade of group.version is under way."""


def all_visible(names: Collection[str]) -> Collection[str]:
    """Every topic may be described."""
    return names
