"""The timers of members: the end of a session, and of the time to revoke partitions; and the removal of members.

The timers follow the hard state: replay starts and stops them. An operation of a timer whose records could not be
written runs again.
"""

import logging
from collections.abc import Callable, Collection
from functools import partial

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.config import GroupConfigs
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.member import ConsumerMember
from gregor.coordinator.group.consumer.metadata_hash import TopicHashes
from gregor.coordinator.group.consumer.reconciliation import MemberState
from gregor.coordinator.ports import Timers
from gregor.coordinator.result import Record, Result
from gregor.protocol.errors import ErrorCode

_log = logging.getLogger(__name__)

RETRY_MS = 500
"""The pause before a removal whose records could not be written is tried again; as in Apache Kafka."""


class Sessions:
    """The timers of the members of one shard."""

    def __init__(
        self,
        configs: GroupConfigs,
        hashes: TopicHashes,
        find: Callable[[str], ConsumerGroup | None],
        timers: Timers,
    ) -> None:
        self._configs = configs
        self._hashes = hashes
        self._find = find
        self._timers = timers

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
        if member.assignment.state is not MemberState.UNREVOKED_PARTITIONS or member.uses_classic_protocol:
            self._timers.cancel(member.rebalance_key)
            return
        end = partial(self._end_revocation, group.group_id, member.member_id, member.epoch)
        self._timers.schedule(member.rebalance_key, max(member.subscription.rebalance_timeout_ms, 0), end)

    def forget(self, member: ConsumerMember) -> None:
        """The member is no longer in its group."""
        self._timers.cancel(member.session_key)
        self._timers.cancel(member.rebalance_key)

    def _end_session(self, group_id: str, member_id: str, now_ms: int) -> Result:
        group = self._find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Result()
        again = partial(self._end_session, group_id, member_id)
        _log.info("Group %r: the session of member %r ended, it is removed", group_id, member_id)
        return self._removal(group, member, lambda _error: self._timers.schedule(member.session_key, RETRY_MS, again))

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
        return self._removal(group, member, lambda _error: self._timers.schedule(member.rebalance_key, RETRY_MS, again))

    def _removal(self, group: ConsumerGroup, member: ConsumerMember, on_failure: Callable[[ErrorCode], None]) -> Result:
        return Result(records=self.fence(group, [member]), on_failure=on_failure)

    # --- removal

    def fence(self, group: ConsumerGroup, members: Collection[ConsumerMember]) -> list[Record]:
        """Records that remove members and begin a new group epoch. Kafka: consumerGroupFenceMembers."""
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
