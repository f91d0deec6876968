"""The regular expressions that members subscribe to: when they are matched with the topics again, and what follows.

All expressions of a group are matched together, in turns of the event loop, so that new topics cause one rebalance. The
topics that count are those that the sender of the heartbeat may describe. Kafka: maybeUpdateRegularExpressions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from enum import Enum, auto
from functools import partial

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.config import ConsumerGroups, VisibleTopics
from gregor.coordinator.group.consumer.group import NEVER_RESOLVED, ConsumerGroup, ResolvedExpression
from gregor.coordinator.group.consumer.member import Subscription
from gregor.coordinator.group.consumer.metadata_hash import TopicHashes
from gregor.coordinator.group.consumer.regular_expressions import compile_expression, matching
from gregor.coordinator.ports import ShardContext
from gregor.coordinator.result import Record, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

_log = logging.getLogger(__name__)

MIN_REFRESH_INTERVAL_MS = 10_000
"""Expressions of a group are not matched more often; Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS."""

_Matches = dict[str, frozenset[str]]
Run = Callable[[Steps[_Matches]], Awaitable[_Matches]]
"""Runs steps in turns of the event loop: Gate.run."""


class ExpressionChange(Enum):
    """How a heartbeat changed the regular expression of its member."""

    NONE = auto()
    CHANGED = auto()
    """The new one is not matched yet: a rebalance follows when it is."""
    RESOLVED = auto()
    """The topics of the new one are known: a rebalance begins at once."""


class Expressions:
    """The regular expressions of the groups of one shard."""

    def __init__(
        self,
        consumer_groups: ConsumerGroups,
        hashes: TopicHashes,
        find: Callable[[str], ConsumerGroup | None],
        context: ShardContext,
        run: Run,
    ) -> None:
        self._topics = consumer_groups.topics
        self._refresh_interval_ms = consumer_groups.settings.regex_refresh_interval_ms
        self._hashes = hashes
        self._find = find
        self._context = context
        self._run = run
        # Groups whose expressions are matched now.
        self._resolving: set[str] = set()
        # How often topics came into being, and that number when a group's expressions were last matched.
        self._topics_version = 1
        self._resolved_at: dict[str, int] = {}

    def on_new_topics(self) -> None:
        """Topics came into being that expressions may match."""
        self._topics_version += 1

    def forget(self, group_id: str) -> None:
        """The group no longer exists."""
        self._resolved_at.pop(group_id, None)

    def update(
        self, group: ConsumerGroup, old: Subscription, new: Subscription, records: list[Record]
    ) -> ExpressionChange:
        """Add the records for a member that changed its expression. Raises KafkaError if the new one is invalid."""
        if old.regex == new.regex:
            return ExpressionChange.NONE
        change = ExpressionChange.CHANGED
        if old.regex and group.regex_counts.get(old.regex) == 1 and old.regex in group.resolved:
            records.append(changes.expression(group.group_id, old.regex, None))
        if not new.regex:
            change = ExpressionChange.RESOLVED
        elif new.regex not in group.regex_counts:
            compile_expression(new.regex)
        elif new.regex in group.resolved:
            change = ExpressionChange.RESOLVED
        return change

    def refresh_if_due(
        self, group: ConsumerGroup, regexes: Collection[str], visible: VisibleTopics, now_ms: int
    ) -> None:
        """Match the expressions of a group again, after the present operation, if something may have changed."""
        group_id = group.group_id
        if not regexes or group_id in self._resolving:
            return
        last_ms = max((found.timestamp_ms for found in group.resolved.values()), default=None)
        if last_ms is not None and now_ms <= last_ms + MIN_REFRESH_INTERVAL_MS:
            group.match_expressions_at(last_ms + MIN_REFRESH_INTERVAL_MS + 1)
            return
        if (
            last_ms is None
            or group.resolved.keys() != set(regexes)
            or self._resolved_at.get(group_id) != self._topics_version
            or now_ms > last_ms + self._refresh_interval_ms
        ):
            self._resolving.add(group_id)
            self._context.submit(partial(self._start, group_id, visible))
        else:
            group.match_expressions_at(last_ms + self._refresh_interval_ms + 1)

    def _start(self, group_id: str, visible: VisibleTopics, now_ms: int) -> Result:
        group = self._find(group_id)
        if group is None or not group.regex_counts:
            self._resolving.discard(group_id)
            return Result()
        steps = _resolve(list(group.regex_counts), list(self._topics.names()), visible)
        outcome = self._context.outcome_of(self._run(steps))
        outcome.then(partial(self._matched, group_id, self._topics_version))
        return Result()

    def _matched(self, group_id: str, topics_version: int, outcome: Deferred[_Matches]) -> None:
        self._resolving.discard(group_id)
        if outcome.cancelled:
            return
        if outcome.error is not None:
            _log.error(
                "Group %r: its regular expressions could not be matched with the topics: %s",
                group_id,
                outcome.error,
                exc_info=outcome.error,
            )
            return
        self._context.submit(partial(self._install, group_id, topics_version, outcome.result()))

    def _install(self, group_id: str, topics_version: int, matches: _Matches, now_ms: int) -> Result:
        """Record what the expressions match, with a new group epoch if that changed. Kafka:
        handleRegularExpressionsResult."""
        group = self._find(group_id)
        if group is None:
            return Result()
        records: list[Record] = []
        resolved = dict(group.resolved)
        version = max((found.version for found in resolved.values()), default=0) + 1
        changed = False
        for regex, topics in matches.items():
            if regex not in group.regex_counts:
                continue
            found = ResolvedExpression(topics, version, now_ms)
            changed = changed or resolved.get(regex, NEVER_RESOLVED).topics != topics
            resolved[regex] = found
            records.append(changes.expression(group_id, regex, found))
        metadata_hash = self._hashes.of(group.subscribed_topics_with((), (), resolved))
        if changed or metadata_hash != group.metadata_hash:
            records.append(changes.group_epoch(group_id, group.epoch + 1, metadata_hash))
            _log.info("Group %r: group epoch %d: topics of its expressions changed", group_id, group.epoch + 1)
        self._resolved_at[group_id] = topics_version
        return Result(records=records, on_failure=lambda _error: self.forget(group_id))


def _resolve(regexes: Iterable[str], names: list[str], visible: VisibleTopics) -> Steps[_Matches]:
    """The topics that each expression matches and that the member may describe."""
    matches = yield from matching(regexes, names)
    found = sorted(set().union(*matches.values()))
    allowed: set[str] = set()
    for first in range(0, len(found), ITEMS_PER_STEP):
        allowed.update(visible(found[first : first + ITEMS_PER_STEP]))
        yield None
    return {regex: topics & allowed for regex, topics in matches.items()}
