"""The timers of members: the end of a session, and of the time to revoke partitions; and the removal of members.

The timers follow the hard state: replay starts and stops them. An operation of a timer whose records could not be
written runs again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable
from functools import partial
from typing import Protocol

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.config import GroupConfigs
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.member import AWAY_EPOCH, ConsumerMember
from gregor.coordinator.group.consumer.metadata_hash import TopicHashes
from gregor.coordinator.group.consumer.reconciliation import MemberState
from gregor.coordinator.history.causes import Trigger
from gregor.coordinator.history.epochs import ConsumerEpochs
from gregor.coordinator.ports import TimedOperation, Timers
from gregor.coordinator.result import Record, Result
from gregor.protocol.errors import ErrorCode

_log = logging.getLogger(__name__)

RETRY_MS = 500
"""The pause before a removal whose records could not be written is tried again; as in Apache Kafka."""


class Conversions(Protocol):
    """The conversion of groups between the protocols."""

    def upgrade(self, group_id: str, records: list[Record]) -> ConsumerGroup | None:
        """Add the records that end the classic group of an id, if there is one; return the consumer group that it
        becomes, if it has members. Raises KafkaError where that is not possible."""

    def downgrade(self, group: ConsumerGroup, leaving: Collection[ConsumerMember], now_ms: int) -> list[Record] | None:
        """Return the records that make a classic group of the members that stay; None if it stays as it is."""

    def end(self, group: ConsumerGroup, now_ms: int) -> list[Record]:
        """Return the records that make a classic group of a consumer group in any case, with or without members."""


class Sessions:
    """The timers of the members of one shard."""

    def __init__(
        self,
        configs: GroupConfigs,
        hashes: TopicHashes,
        find: Callable[[str], ConsumerGroup | None],
        timers: Timers,
        conversions: Conversions,
        history: ConsumerEpochs,
    ) -> None:
        self._history = history
        self._configs = configs
        self._hashes = hashes
        self._find = find
        self._timers = timers
        self._conversions = conversions
        # Classic members that were notified of a rebalance and have not joined since.
        self._awaited: set[tuple[str, str, str]] = set()

    # --- timers

    def watch(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """(Re)start the session of a member, as every heartbeat does."""
        classic = member.subscription.classic
        if classic is None:
            timeout_ms = self._configs.of(group.group_id).session_timeout_ms
        else:
            timeout_ms = classic.session_timeout_ms
        end = partial(self._end_session, group.group_id, member.member_id)
        self._timers.schedule(member.session_key, timeout_ms, end)

    def watch_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start or stop the time to revoke partitions, after a change of the member's assignment."""
        revokes = member.assignment.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != AWAY_EPOCH
        if not revokes or member.uses_classic_protocol:
            self._timers.cancel(member.rebalance_key)
            return
        end = partial(self._end_revocation, group.group_id, member.member_id, member.epoch)
        self._timers.schedule(member.rebalance_key, max(member.subscription.rebalance_timeout_ms, 0), end)

    def forget(self, member: ConsumerMember) -> None:
        """The member is no longer in its group."""
        self._timers.cancel(member.session_key)
        self._timers.cancel(member.rebalance_key)
        if member.uses_classic_protocol:
            _, group_id, member_id = member.session_key
            self.joined(group_id, member_id)
            self.synced(group_id, member_id)

    # --- members of the classic protocol

    def await_join(self, group_id: str, member: ConsumerMember) -> None:
        """A member was notified of a rebalance: it has its rebalance timeout to join, from the first time on."""
        key = _join_key(group_id, member.member_id)
        if key not in self._awaited:
            self._awaited.add(key)
            self._schedule_classic(key, "join", member.subscription.rebalance_timeout_ms)

    def joined(self, group_id: str, member_id: str) -> None:
        """The member has joined, or is gone."""
        key = _join_key(group_id, member_id)
        if key in self._awaited:
            self._awaited.discard(key)
            self._timers.cancel(key)

    def await_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """A member has joined, and must fetch its assignment within this time."""
        self._schedule_classic(_sync_key(group_id, member_id), "sync", timeout_ms)

    def synced(self, group_id: str, member_id: str) -> None:
        """The member has fetched its assignment, or is gone."""
        self._timers.cancel(_sync_key(group_id, member_id))

    def _schedule_classic(self, key: tuple[str, str, str], missing: str, timeout_ms: int) -> None:
        self._timers.schedule(key, max(timeout_ms, 0), partial(self._end_classic, key, missing, timeout_ms))

    def _end_classic(self, key: tuple[str, str, str], missing: str, timeout_ms: int, now_ms: int) -> Result:
        self._awaited.discard(key)
        _, group_id, member_id = key
        group = self._find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or not member.uses_classic_protocol:
            return Result()
        again = partial(self._end_classic, key, missing, timeout_ms)
        _log.info(
            "Group %r: classic member %r did not %s within %d ms, it is removed",
            group_id,
            member_id,
            missing,
            timeout_ms,
        )
        trigger = Trigger.REBALANCE_TIMEOUT if missing == "join" else Trigger.SYNC_TIMEOUT
        self._history.expect(group_id, member_id, trigger, f"after {timeout_ms} ms")
        return self._removal(group, member, key, again, now_ms)

    # --- the ends of time

    def _end_session(self, group_id: str, member_id: str, now_ms: int) -> Result:
        group = self._find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Result()
        again = partial(self._end_session, group_id, member_id)
        _log.info("Group %r: the session of member %r ended, it is removed", group_id, member_id)
        self._history.expect(group_id, member_id, Trigger.SESSION_TIMEOUT, "")
        return self._removal(group, member, member.session_key, again, now_ms)

    def _end_revocation(self, group_id: str, member_id: str, epoch: int, now_ms: int) -> Result:
        group = self._find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or member.epoch != epoch:
            return Result()
        again = partial(self._end_revocation, group_id, member_id, epoch)
        _log.info(
            "Group %r: member %r has not revoked partitions of epoch %d within %d ms, it is removed",
            group_id,
            member_id,
            epoch,
            member.subscription.rebalance_timeout_ms,
        )
        detail = f"after {member.subscription.rebalance_timeout_ms} ms"
        self._history.expect(group_id, member_id, Trigger.REBALANCE_TIMEOUT, detail)
        return self._removal(group, member, member.rebalance_key, again, now_ms)

    def _removal(
        self, group: ConsumerGroup, member: ConsumerMember, key: Hashable, again: TimedOperation, now_ms: int
    ) -> Result:
        def on_failure(_error: ErrorCode) -> None:
            self._timers.schedule(key, RETRY_MS, again)

        return Result(records=self.fence(group, [member], now_ms), on_failure=on_failure)

    # --- removal

    def fence(self, group: ConsumerGroup, members: Collection[ConsumerMember], now_ms: int) -> list[Record]:
        """Records that remove members and begin a new group epoch; or make a classic group of those that stay, if these
        use the classic protocol. Kafka: consumerGroupFenceMembers."""
        converted = self._conversions.downgrade(group, members, now_ms)
        if converted is not None:
            return converted
        group_id = group.group_id
        records: list[Record] = []
        for member in members:
            records += changes.member_tombstones(group_id, member.member_id)
        removed = [member.subscription for member in members]
        regexes = group.regexes_with(removed, ())
        for regex in dict.fromkeys(subscription.regex for subscription in removed):
            if regex and regex not in regexes:
                records.append(changes.expression(group_id, regex, None))
        metadata_hash = self._hashes.of(group.subscribed_topics_with(removed, ()))
        records.append(changes.group_epoch(group_id, group.epoch + 1, metadata_hash))
        return records


def _join_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The key of the timer that ends the wait for the JoinGroup of a classic member."""
    return ("consumer-join", group_id, member_id)


def _sync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The key of the timer that ends the wait for its SyncGroup."""
    return ("consumer-sync", group_id, member_id)
