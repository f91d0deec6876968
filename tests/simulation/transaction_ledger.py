"""The promises of transactions, each checked when something shows whether it is kept.

A record of a transaction has the transaction's name in its value. A client that sends a commit knows its outcome when
it has the answer; where no answer comes, the first record that a read_committed consumer sees decides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING

from gregor.protocol.records.batch import RecordBatch, iter_batches
from tests.simulation.reading import bytes_below

if TYPE_CHECKING:
    from gregor.storage.log.log import Log
    from tests.simulation.world import World

Key = tuple[str, int]
ABORT = 0
COMMIT = 1


class Outcome(Enum):
    """Of a transaction, as far as clients may know it."""

    OPEN = auto()
    """No commit was sent: no record may ever be visible, unless one is sent."""
    COMMIT_SENT = auto()
    COMMITTED = auto()
    ABORTED = auto()
    """Ended otherwise, or fenced before a commit was sent, or its only commit was refused."""


class Transaction:
    """One transaction of one instance of a producer, and its acknowledged records."""

    def __init__(self, owner: str, generation: int, number: int) -> None:
        self.owner = owner
        self.generation = generation
        self.number = number
        self.name = b"%s.%d" % (owner.encode(), number)
        self.outcome = Outcome.OPEN
        self.why = "open"
        self.records: dict[tuple[Key, int], bytes] = {}
        """Values by partition and offset."""
        self.has_offset = False
        """Whether it commits its number as the offset of its producer's group."""


class TransactionLedger:
    """All transactions of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.transactions: dict[bytes, Transaction] = {}
        self.read_count = 0
        self._generations: dict[str, int] = {}
        """The instance of each transactional id that the coordinator has initialised last."""
        self._stable_offsets: dict[Key, int] = {}
        self._read: dict[Key, dict[int, bytes]] = {}

    def _violation(self, text: str) -> None:
        self._world.ledger.violation(text)

    def count(self, outcome: Outcome) -> int:
        return sum(one.outcome is outcome for one in self.transactions.values())

    # -- what clients do -------------------------------------------------------------------------------------------

    def begin(self, owner: str, generation: int, number: int) -> Transaction:
        one = Transaction(owner, generation, number)
        self.transactions[one.name] = one
        if self.is_fenced(one):
            self._end(one, Outcome.ABORTED, "begun by a fenced producer")
        return one

    def is_fenced(self, one: Transaction) -> bool:
        return one.generation < self._generations.get(one.owner, 0)

    def initialised(self, owner: str, generation: int) -> None:
        """A new instance of a producer has an epoch: those before it are fenced, and their transactions decided."""
        self._generations[owner] = max(generation, self._generations.get(owner, 0))
        for one in self.transactions.values():
            if one.owner == owner and one.outcome is Outcome.OPEN and self.is_fenced(one):
                self._end(one, Outcome.ABORTED, "its producer was fenced")

    def acknowledged(self, one: Transaction, key: Key, base_offset: int, values: list[bytes]) -> None:
        for offset, value in enumerate(values, base_offset):
            one.records[key, offset] = value

    def commit_sent(self, one: Transaction) -> None:
        if one.outcome is Outcome.OPEN:
            self._end(one, Outcome.COMMIT_SENT, "a commit was sent")

    def committed(self, one: Transaction, how: str) -> None:
        if one.outcome is Outcome.ABORTED:
            self._violation(f"{one.name!r} is committed ({how}), but {one.why}")
        self._end(one, Outcome.COMMITTED, how)

    def aborted(self, one: Transaction, how: str) -> None:
        if one.outcome is Outcome.COMMITTED:
            self._violation(f"{one.name!r} is aborted ({how}), but {one.why}")
        self._end(one, Outcome.ABORTED, how)

    def _end(self, one: Transaction, outcome: Outcome, why: str) -> None:
        self._world.trace(f"{one.name.decode()} is {outcome.name}: {why}")
        one.outcome, one.why = outcome, why

    # -- what consumers see ----------------------------------------------------------------------------------------

    def read(self, key: Key, offset: int, value: bytes) -> None:
        """A read_committed consumer has read this record."""
        self.read_count += 1
        self._read.setdefault(key, {})[offset] = value
        one = self._of(value)
        if one is None or one.outcome is Outcome.COMMITTED:
            return
        if one.outcome is Outcome.COMMIT_SENT:
            self.committed(one, f"{value!r} at {offset} of {key} was read")
        else:
            self._violation(f"{key}: {value!r} at {offset} is visible to read_committed, but {one.why}")

    def latest_stable(self, key: Key, offset: int, broker_id: int) -> None:
        """ListOffsets answers with the last stable offset.

        Where records of an open transaction were deleted, it is the first offset that is left. Another leader may have
        them still if the deletion was not acknowledged.
        """
        known = self._stable_offsets.get(key, 0)
        if offset < known:
            self._violation(f"last stable offset of {key} goes back from {known} to {offset} at broker {broker_id}")
        log = self._world.log(broker_id, key)
        if log is None or offset > log.log_start_offset:
            self._stable_offsets[key] = offset

    def offset_fetched(self, owner: str, offset: int) -> None:
        """A group coordinator, perhaps one that was replaced, answers with the stable offset of a producer's group."""
        if offset < 0:
            return
        one = self.transactions[b"%s.%d" % (owner.encode(), offset)]
        if one.outcome is Outcome.COMMIT_SENT:
            self.committed(one, "its offset was fetched")
        elif one.outcome is not Outcome.COMMITTED:
            self._violation(f"the group of {owner} has the offset {offset}, but {one.why}")

    def last_offset_fetched(self, owner: str, offset: int) -> None:
        """The same, when all transactions of the producer are decided."""
        for one in self.transactions.values():
            if one.owner == owner and one.has_offset and one.number > offset:
                if one.outcome is Outcome.COMMITTED:
                    self._violation(f"the group of {owner} has the offset {offset} and not {one.number}, but {one.why}")
                elif one.outcome is Outcome.COMMIT_SENT:
                    self.aborted(one, f"the offset is {offset}")

    def _of(self, value: bytes) -> Transaction | None:
        """Return the transaction of a record; None if it is in none."""
        return self.transactions.get(value.rpartition(b".")[0])

    # -- in the end ------------------------------------------------------------------------------------------------

    def close(self, key: Key, log: Log, read_again: dict[int, bytes]) -> None:
        """Check the log, and what a read_committed consumer has read of all of it, once no transaction is open."""
        start = log.log_start_offset
        visible = visible_records(log)
        for names in mixed_transactions(log):
            self._violation(f"{key}: one marker ends the records of {names}")
        for offset, value in visible.items():
            one = self._of(value)
            if one is not None and one.records.get((key, offset)) != value:
                self._violation(f"{key}: {value!r} is visible at {offset}, where it was not acknowledged")
        for offset, value in self._read.get(key, {}).items():
            if offset >= start and visible.get(offset) != value:
                self._violation(f"{key} offset {offset}: {value!r} was read as committed, and is not in the end")
        for one in self.transactions.values():
            records = {offset: value for (of, offset), value in one.records.items() if of == key and offset >= start}
            seen = [offset for offset, value in records.items() if visible.get(offset) == value]
            if not records:
                continue
            if one.outcome is Outcome.COMMIT_SENT:
                if seen:
                    self.committed(one, f"visible in {key} in the end")
                else:
                    self.aborted(one, f"invisible in {key} in the end")
            if len(seen) != (len(records) if one.outcome is Outcome.COMMITTED else 0):
                self._violation(
                    f"{key}: {len(seen)} of {len(records)} records of {one.name!r} are visible, but {one.why}"
                )
        if read_again != visible:
            differing = sorted(set(read_again.items()) ^ set(visible.items()))[:3]
            self._violation(f"{key}: a consumer has not read exactly what is committed: {differing}")


def is_abort(batch: RecordBatch) -> bool:
    """Whether a control batch is the marker of an abort (its record's key is a version and the type)."""
    (record,) = batch.records()
    kind = int.from_bytes(bytes(record.key or b"")[2:4], "big")
    assert kind in (ABORT, COMMIT)
    return kind == ABORT


def visible_records(log: Log) -> dict[int, bytes]:
    """Values by offset that are in no transaction, or in a committed one."""
    start = log.log_start_offset
    found = (one for records, is_committed in _decided(log) if is_committed for one in records)
    return {offset: value for offset, value in found if offset >= start}


def mixed_transactions(log: Log) -> list[list[bytes]]:
    """The names of transactions that have ended by one marker: a record of the first came behind its own."""
    found = [sorted({value.rpartition(b".")[0] for _, value in records}) for records, _ in _decided(log)]
    return [names for names in found if len(names) > 1]


def _decided(log: Log) -> Iterator[tuple[list[tuple[int, bytes]], bool]]:
    """Yield the records of each transaction, or of each batch without one, and whether they are committed."""
    pending: dict[int, list[tuple[int, bytes]]] = {}
    for batch in iter_batches(bytes_below(log, log.log_start_offset, log.log_end_offset)):
        if batch.is_control:
            yield pending.pop(batch.producer_id, []), not is_abort(batch)
            continue
        values = [(record.offset, bytes(record.value or b"")) for record in batch.records()]
        if batch.is_transactional:
            pending.setdefault(batch.producer_id, []).extend(values)
        else:
            yield values, True
