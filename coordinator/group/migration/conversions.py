"""When groups of one shard are converted, and what follows when the records of a conversion have been replayed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.config import ConsumerGroups
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.member import ConsumerMember
from gregor.coordinator.group.consumer.metadata_hash import TopicHashes
from gregor.coordinator.group.group import Group
from gregor.coordinator.group.member import Member
from gregor.coordinator.group.migration.conversion import downgrade, downgrade_error, only_classic_without, upgrade
from gregor.coordinator.group.rebalance import Rebalances
from gregor.coordinator.group.records import encode_record
from gregor.coordinator.group.soft_state import SoftState
from gregor.coordinator.group.states import GroupState
from gregor.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from gregor.coordinator.history.causes import Cause, Trigger
from gregor.coordinator.ports import TimedOperation
from gregor.coordinator.result import Record, Result
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue

_log = logging.getLogger(__name__)

MAX_CONVERSION_BYTES = 512 * 1024
"""The limit of the records of a conversion: they are one batch, with those of the change that causes it, which must be
below `max.message.bytes` of the topic."""


class Conversions:
    """Implements the seam of the same name for consumer groups."""

    def __init__(
        self,
        consumer_groups: ConsumerGroups,
        max_classic_size: int,
        groups: Mapping[str, Group],
        soft: SoftState,
        rebalances: Rebalances,
        submit: Callable[[TimedOperation], None],
    ) -> None:
        """`max_classic_size` is group.max.size; `submit` runs an operation after the present one."""
        self._topics = consumer_groups.topics
        self._settings = consumer_groups.settings
        self._max_classic_size = max_classic_size
        self._groups = groups
        self._soft = soft
        self._rebalances = rebalances
        self._submit = submit

    # --- to a consumer group

    def upgrade(self, group_id: str, records: list[Record]) -> ConsumerGroup | None:
        """End a classic group; one with members becomes the consumer group that is returned. Offsets stay.

        Joins and syncs that are parked end with REBALANCE_IN_PROGRESS when the records are replayed.
        """
        state = self._soft.state(group_id)
        if state is GroupState.DEAD:
            return None
        membership = self._soft.find(group_id)
        if state is GroupState.EMPTY or membership is None:
            group = self._groups.get(group_id)
            if group is not None and group.metadata is not None:
                records.append(Record(GroupMetadataKey(group=group_id), None))
            return None
        settings = self._settings
        hash_of = TopicHashes(self._topics).of
        policy, max_size = settings.migration_policy, settings.max_size
        converted, upgrading = upgrade(membership, policy, max_size, self._topics, hash_of)
        if _size_bytes(upgrading) > MAX_CONVERSION_BYTES:
            text = f"Cannot upgrade classic group {group_id} to consumer group because its records exceed a batch."
            _log.warning("%s It has %d members; stop them all to change the protocol", text, len(converted.members))
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        records += upgrading
        _log.info("Group %r: the classic group becomes a consumer group in epoch %d", group_id, converted.epoch)
        return converted

    # --- to a classic group

    def downgrade(self, group: ConsumerGroup, leaving: Collection[ConsumerMember], now_ms: int) -> list[Record] | None:
        """Return the records that make a classic group of the members that stay; None if the group stays as it is."""
        gone = {member.member_id for member in leaving}
        if not self.allows_downgrade(group, gone):
            return None
        cause = Cause(Trigger.PROTOCOL_CHANGED, detail="the last member of the consumer protocol has left")
        try:
            records = self.downgraded(group, gone, cause, now_ms)
        except KafkaError:
            return None  # the reason has been logged
        if _size_bytes(records) > MAX_CONVERSION_BYTES:
            _log.warning(
                "Group %r: it stays a consumer group, as the records of a downgrade exceed a batch", group.group_id
            )
            return None
        return records

    def end(self, group: ConsumerGroup, now_ms: int) -> list[Record]:
        """Return the records that make a classic group of a consumer group because none is served any more.

        Members of the consumer protocol are removed. Where no other stays the classic group is empty, and its offsets
        are kept from now on.
        """
        leaving = set()
        for member in group.members.values():
            if not member.uses_classic_protocol:
                leaving.add(member.member_id)
                _log.warning(
                    "Group %r: member %r of %s is removed, it uses the consumer protocol, which is not served any more;"
                    " start it again with group.protocol=classic",
                    group.group_id,
                    member.member_id,
                    member.subscription.client_host,
                )
        if len(leaving) < len(group.members):
            cause = Cause(Trigger.PROTOCOL_CHANGED, detail="the consumer protocol is not served any more")
            try:
                return self.downgraded(group, leaving, cause, now_ms)
            except KafkaError:
                _log.warning("Group %r: all its members are removed", group.group_id)
        value = GroupMetadataValue(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            generation=group.epoch,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )
        return [*changes.group_tombstones(group), Record(GroupMetadataKey(group=group.group_id), value)]

    def allows_downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Whether the group becomes a classic one without these members."""
        if not only_classic_without(group, leaving):
            return False
        error = downgrade_error(group, leaving, self._settings.migration_policy, self._max_classic_size)
        if error is not None:
            _log.info("Group %r: it is not converted to a classic group: %s", group.group_id, error)
        return error is None

    def allows_replacement(self, group: ConsumerGroup) -> bool:
        """Whether the group may become a classic one with as many members."""
        return downgrade_error(group, (), self._settings.migration_policy, self._max_classic_size) is None

    def downgraded(
        self,
        group: ConsumerGroup,
        leaving: Collection[str],
        cause: Cause | None,
        now_ms: int,
        joining: ConsumerMember | None = None,
    ) -> list[Record]:
        """Return the records of a downgrade, as conversion.downgrade. A rebalance follows if there is a cause. Raises
        KafkaError."""
        converted = downgrade(group, leaving, self._topics, now_ms, joining)
        _log.info("Group %r: the consumer group becomes a classic group in generation %d", group.group_id, group.epoch)
        self._submit(partial(self._begin_classic, group.group_id, converted.members, cause))
        return converted.records

    def _begin_classic(self, group_id: str, members: Iterable[Member], cause: Cause | None, now_ms: int) -> Result:
        """The records of a downgrade have been replayed, or could not be written: then the group is as it was."""
        group = self._groups.get(group_id)
        if group is None or group.metadata is None or not group.metadata.members:
            return Result()
        membership = self._soft.open(group_id)
        for known in members:
            member = membership.members.get(known.member_id)
            if member is not None:
                timeouts_ms = known.rebalance_timeout_ms, known.session_timeout_ms
                membership.update(member, known.protocols, *timeouts_ms)
                self._rebalances.watch_session(membership, member)
        if cause is None or membership.state is not GroupState.STABLE:
            return Result()
        return self._rebalances.begin(membership, [cause], cause.detail, now_ms)


def _size_bytes(records: Iterable[Record]) -> int:
    return sum(len(key) + len(value or b"") for key, value in map(encode_record, records))
