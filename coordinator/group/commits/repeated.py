"""An offset commit that its sender repeats, of which only the offsets differ from the one before.

Consumers commit the same partitions again and again. The first commits are served like any request; for the later ones
the bytes of the records are known but for their offsets and times (records.batch_template). The sender is checked, and
the records are replayed, as those of any commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gregor.coordinator.group.records import NO_TIMESTAMP, encode_record
from gregor.coordinator.result import Record, WholeBatch
from gregor.protocol.messages import OffsetCommitKey, OffsetCommitRequest, OffsetCommitValue
from gregor.protocol.records.batch import build_batch
from gregor.protocol.records.batch_template import BatchTemplate

if TYPE_CHECKING:
    from gregor.coordinator.group.offsets import Offsets

BROKER_RETENTION_FROM = 5
"""Before this version a commit has times of its own."""
MAX_PARTITIONS = 32
"""Of a commit that is recognised. One with more gains little, and would be kept for as long as its connection lives."""


CommitAgain = Callable[[Sequence[int]], bool]
"""Commits these offsets, in the order of the request, and returns True once they are committed. False: nothing has
happened, and the general way must serve the request."""


class HasOffsets(Protocol):
    """A shard of groups."""

    @property
    def offsets(self) -> Offsets: ...


class _Position(NamedTuple):
    """A partition of the commit, and all that is repeated of its position."""

    key: OffsetCommitKey
    leader_epoch: int
    metadata: str

    def record(self, offset: int, now_ms: int) -> Record:
        return Record(
            self.key,
            OffsetCommitValue(
                offset=offset,
                leader_epoch=self.leader_epoch,
                metadata=self.metadata,
                commit_timestamp=now_ms,
                expire_timestamp=NO_TIMESTAMP,
            ),
        )


class RepeatedCommit:
    """The commit. It belongs to no shard, so it outlives a change of the leader."""

    __slots__ = ("_positions", "_request", "_template", "_version")

    def __init__(
        self, request: OffsetCommitRequest, version: int, positions: list[_Position], template: BatchTemplate
    ) -> None:
        self._request = request
        self._version = version
        self._positions = positions
        self._template = template

    @classmethod
    def of(cls, request: OffsetCommitRequest, version: int) -> RepeatedCommit | None:
        """Return the commit that repeats a request; None for a request of another kind."""
        positions = [
            _Position(
                OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index),
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        if version < BROKER_RETENTION_FROM or not 0 < len(positions) <= MAX_PARTITIONS:
            return None

        def build(offsets: Sequence[int], now_ms: int) -> bytearray:
            return build_batch(list(map(encode_record, _records(positions, offsets, now_ms))), timestamp_ms=now_ms)

        template = BatchTemplate.of(build, len(positions))
        return None if template is None else cls(request, version, positions, template)

    def commit(self, offsets: Sequence[int], shard: HasOffsets, now_ms: int) -> WholeBatch | None:
        """Return the records that commit these offsets, in the order of the request; None if the group does not accept
        them from this sender."""
        if not shard.offsets.accept_again(self._request, self._version):
            return None
        return WholeBatch(self._template.fill(offsets, now_ms), _records(self._positions, offsets, now_ms))


Repeat = Callable[[Callable[[HasOffsets, int], WholeBatch | None]], bool]
"""CoordinatorRuntime.repeat, on the partition of the group."""


def commit_again(
    request: OffsetCommitRequest, version: int, repeat: Repeat, is_current: Callable[[], bool]
) -> CommitAgain | None:
    """Return how a commit that has succeeded is served when it comes again; None for one of a kind that is not
    recognised. The request must not be changed any more, but for its offsets. `is_current`: the group still belongs to
    the partition."""
    repeated = RepeatedCommit.of(request, version)
    if repeated is None:
        return None
    commit = repeated.commit
    return lambda offsets: is_current() and repeat(lambda shard, now_ms: commit(offsets, shard, now_ms))


def _records(positions: Sequence[_Position], offsets: Sequence[int], now_ms: int) -> list[Record]:
    return [position.record(offset, now_ms) for position, offset in zip(positions, offsets, strict=True)]
