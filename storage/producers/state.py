"""The state of the idempotent producers that wrote to a log: enough to detect a batch that is sent twice.

Per producer id: its epoch, the sequence from which on the log holds all of its batches, and of its last ten batches the
sequence range, the offsets and the timestamp. A producer has few requests in flight, so a batch that is sent again is
mostly one of these. (Kafka's ProducerStateManager, ProducerStateEntry and ProducerAppendInfo; KIP-98, KIP-360.)

Unlike Kafka, this distinguishes the repetition of an older batch from a gap. When a leader hangs, Java's client
continues with the next leader, with any number of batches, before it repeats there the batches that the old one did not
answer. If these are refused as out of order, the client sends them again for delivery.timeout.ms, and then under
another epoch, in which they are stored a second time.

Also unlike Kafka, a gap is no error where a leader is new. A client sends again the batches that the leader before has
refused, and the batches that it sent after them may arrive first. If these are refused as out of order, librdkafka
begins another epoch for all its partitions, and batches that were in flight to others are stored a second time.

A snapshot is written where a segment begins and at a clean close, so that a start need not read the whole log.

A batch that a producer sent before its last one is searched in the log when it is sent again
(storage.producers.recall): Kafka refuses it as out of order after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.producers.entry import MAX_SEQUENCES_BACK, AppendedBatch, ProducerEntry
from gregor.storage.producers.recall import batches_below
from gregor.storage.producers.snapshot import format_snapshot, parse_snapshot
from gregor.storage.producers.transaction_checks import check_epoch
from gregor.storage.producers.transactions import Transactions
from gregor.storage.producers.verification import OptionalGuard, Verifications
from gregor.storage.segment.batches import CONTROL_BIT, SEQUENCE_MASK, TRANSACTIONAL_BIT, BatchHeader
from gregor.storage.segment.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, OldMessageFormat, file_stem

if TYPE_CHECKING:
    from gregor.protocol.records.control import EndMarker
    from gregor.storage.fs.files import Files
    from gregor.storage.segment.segment import Segment

MAX_AWAITED = 1000
NEW_LEADER_MS = 30_000
"""The time within which clients send again the batches that the leader before did not answer: they wait that long for a
response (request.timeout.ms)."""
DEFAULT_EXPIRATION_MS = 86_400_000
"""producer.id.expiration.ms"""


class ProducerStates:
    """All producers of one log, and the snapshots in its folder."""

    __slots__ = (
        "_directory",
        "_files",
        "awaited",
        "entries",
        "expiration_ms",
        "knows_all",
        "led_since_ms",
        "recalled_from",
        "snapshot_offsets",
        "transactions",
        "unsynced_snapshots",
        "verifications",
    )

    def __init__(self, files: Files, directory: str, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        self._files = files
        self._directory = directory
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        self.transactions: Transactions | None = None
        """None while no batch of a transaction was appended or replayed. Those that are open are the entries with a
        `transaction_first_offset`."""
        self.verifications: Verifications | None = None
        self.awaited: dict[int, tuple[int, int, int]] = {}
        """Producer id -> epoch, and the sequences of the first and the last batch that were refused for a temporary
        reason. Batches that were sent after them must not be appended before them. At most MAX_AWAITED producers, as
        clients may invent ids; those that were refused longest ago are dropped, and treated as Kafka treats them."""
        self.led_since_ms: int | None = None
        """The time from which on clients write to this log that wrote to another broker before; None: they did not."""
        self.knows_all = False
        """Nothing was deleted from the log at that time: a producer that is unknown has not written lately."""
        self.recalled_from: int | None = None
        """Below this offset only the last batch of each producer is known, from a snapshot; None: the batches in the
        log are known, too."""
        self.snapshot_offsets: list[int] = []
        """Of the snapshots in the folder, ascending. Filled by `list_snapshots`."""
        self.unsynced_snapshots: list[str] = []
        """Paths of those that were written, but not synced."""

    # Checks and updates

    def begin_to_lead(self, since_ms: int | None, *, knows_all: bool) -> None:
        """Drop what was noted of refused batches. `since_ms` is the present time if clients wrote to another broker
        until now: a batch may then arrive later than those that were sent after it. `knows_all`: nothing was deleted
        from the log."""
        self.awaited.clear()
        self.led_since_ms = since_ms
        self.knows_all = knows_all

    def await_sequence(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Note that a batch which begins with this sequence was refused, for a temporary reason: no later batch of the
        producer is appended before it."""
        first = last = sequence
        refused = self._refused(producer_id, epoch)
        if refused is not None:
            expected = self._expected(producer_id, epoch)
            first = min(sequence, refused[0], key=lambda one: _ahead(one, expected))
            last = max(sequence, refused[1], key=lambda one: _ahead(one, expected))
        self.awaited.pop(producer_id, None)
        if len(self.awaited) >= MAX_AWAITED:
            del self.awaited[next(iter(self.awaited))]
        self.awaited[producer_id] = epoch, first, last

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        high_watermark: int,
        now_ms: int,
        segments: Sequence[Segment],
        *,
        from_client: bool = True,
    ) -> AppendedBatch | None:
        """Check whether a batch may be appended. Returns the batch that it repeats, if that is one of the last ten;
        None if it may be appended. `segments` are those of the log, and are read where a snapshot does not hold enough.

        Raises INVALID_PRODUCER_EPOCH for an epoch that was fenced, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, and for a
        new epoch that does not begin with 0; KAFKA_STORAGE_ERROR for a gap that a failed write of this broker has
        caused, NOT_ENOUGH_REPLICAS for one that a refusal here or by the leader before has caused: the producer sends
        the batch again, as it did nothing wrong. For an older repetition DUPLICATE_SEQUENCE_NUMBER, which clients treat
        as a success without an offset, once it is committed, and before that NOT_ENOUGH_REPLICAS_AFTER_APPEND. An
        unknown producer may begin with any sequence, as its earlier batches may have been deleted (KIP-360); where none
        was deleted, not while the leader is new.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            if from_client and first_sequence > 0:
                self._check_passing(producer_id, epoch, first_sequence, now_ms)
            return None
        if epoch == entry.epoch and from_client:
            for fields in entry.batches:
                batch = AppendedBatch._make(fields)
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        check_epoch(entry, epoch)
        if not from_client:
            return None
        if epoch != entry.epoch:
            if first_sequence != 0 and entry.epoch != -1:
                self._check_passing(producer_id, epoch, first_sequence, now_ms)
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} begins epoch {epoch} with sequence {first_sequence}, not 0",
                )
        elif first_sequence != entry.next_sequence:
            if entry.held_before(first_sequence, last_sequence):
                raise _stored_before(entry, first_sequence, high_watermark)
            if _ahead(first_sequence, entry.next_sequence) < 0 and self.recall(segments):
                return self.check(producer_id, epoch, first_sequence, last_sequence, high_watermark, now_ms, segments)
            self._refuse_gap(entry, first_sequence, now_ms)
        return None

    def _refuse_gap(self, entry: ProducerEntry, first_sequence: int, now_ms: int) -> NoReturn:
        """Raise the error of a batch that does not begin with its producer's next sequence."""
        producer_id, epoch = entry.producer_id, entry.epoch
        if entry.lost_sequence == entry.next_sequence:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"producer {producer_id}: sequence {entry.lost_sequence} before it could not be written",
            )
        self._check_passing(producer_id, epoch, first_sequence, now_ms)
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id}, epoch {epoch}: sequence {entry.next_sequence} expected, got {first_sequence}",
        )

    def recall(self, segments: Sequence[Segment]) -> bool:
        """Read the batches in the log that a snapshot does not hold; returns whether more is known now. It is done
        once, as it reads files, and only few producers ever need it."""
        if self.recalled_from is None:
            return False
        earlier = ProducerStates(self._files, self._directory)
        try:
            for batch in batches_below(segments, self.recalled_from):
                earlier.replay(batch)
        except (OSError, OldMessageFormat):
            return False
        finally:
            self.recalled_from = None
        for entry in self.entries.values():
            found = earlier.entries.get(entry.producer_id)
            if found is not None:
                entry.recall(found)
        return True

    def _check_passing(self, producer_id: int, epoch: int, first_sequence: int, now_ms: int) -> None:
        """Raise NOT_ENOUGH_REPLICAS for a gap that batches will fill which were refused here, or by the leader
        before."""
        expected = self._expected(producer_id, epoch)
        if _ahead(first_sequence, expected) < 0:
            return
        refused = self._refused(producer_id, epoch)
        if refused is not None and _ahead(refused[0], expected) < _ahead(first_sequence, expected):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"producer {producer_id}: sequence {refused[0]} before it was refused just now",
            )
        since_ms = self.led_since_ms
        if since_ms is None:
            return
        if now_ms < since_ms:  # the machine's clock was set back: count from here
            since_ms = self.led_since_ms = now_ms
        if now_ms - since_ms >= NEW_LEADER_MS:
            return
        if not self.knows_all and producer_id not in self.entries:
            return
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"producer {producer_id}: sequence {expected} expected, got {first_sequence}; the leader is new, and what"
            " the one before refused may come yet",
        )

    def _refused(self, producer_id: int, epoch: int) -> tuple[int, int] | None:
        """Return the range of sequences in which refused batches may be missing."""
        refused_epoch, first, last = self.awaited.get(producer_id, (-1, 0, 0))
        expected = self._expected(producer_id, epoch)
        if refused_epoch != epoch or _ahead(last, expected) < 0:
            return None
        return max(first, expected, key=lambda one: _ahead(one, expected)), last

    def _expected(self, producer_id: int, epoch: int) -> int:
        entry = self.entries.get(producer_id)
        return entry.next_sequence if entry is not None and entry.epoch == epoch else 0

    def entry(self, producer_id: int) -> ProducerEntry:
        """Return the entry of a producer, and create it if there is none."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        return entry

    def replay(self, batch: BatchHeader, marker: EndMarker | None = None, high_watermark: int = 0) -> None:
        """Add a batch that is in the log already (it was checked before its append), as `Segment.scan` yields it.

        Batches without a producer id are skipped. `marker` is the content of a control batch, which a scan does not
        read; None where compaction has removed it. Ended transactions are forgotten if the marker lies below the
        `high_watermark`.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return
        base_offset, last_offset, attributes = batch.base_offset, batch.last_offset, batch.attributes
        timestamp, epoch, base_sequence = batch.max_timestamp, batch.producer_epoch, batch.base_sequence
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if attributes & TRANSACTIONAL_BIT and self.verifications is not None:
            self.verifications.appended(producer_id, epoch, bool(attributes & CONTROL_BIT))
        if attributes & CONTROL_BIT:
            if entry.transaction_first_offset >= 0 and self.transactions is not None:
                self.transactions.end(producer_id, base_offset, high_watermark)
            entry.end_transaction(
                epoch, timestamp, entry.coordinator_epoch if marker is None else marker.coordinator_epoch
            )
            return
        if base_sequence != entry.next_sequence:
            entry.begins_at = base_sequence
        delta = last_offset - base_offset
        last_sequence = (base_sequence + delta) & SEQUENCE_MASK if base_sequence >= 0 else -1
        entry.add(epoch, (last_sequence, last_offset, delta, timestamp))
        if attributes & TRANSACTIONAL_BIT and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            if self.transactions is None:
                self.transactions = Transactions()
            self.transactions.begin(producer_id, base_offset)

    def forget_after(self, expiration_ms: int) -> None:
        """Apply another producer.id.expiration.ms from now on."""
        self.expiration_ms = expiration_ms

    def expire(self, now_ms: int) -> None:
        """Remove producers that wrote nothing for `expiration_ms` and have no open transaction."""
        for producer_id in [entry.producer_id for entry in self.entries.values() if self._expired(entry, now_ms)]:
            del self.entries[producer_id]
            self.awaited.pop(producer_id, None)
        if self.verifications is not None:
            self.verifications.expire(now_ms, self.expiration_ms)

    def clear(self) -> None:
        self.entries.clear()
        self.transactions = None
        self.recalled_from = None

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, new_protocol: bool) -> OptionalGuard:
        """Return a guard for the verification of a batch; None if the transaction is open here already. Raises
        INVALID_PRODUCER_EPOCH. (Kafka's UnifiedLog.maybeStartTransactionVerification.)"""
        entry = self.entries.get(producer_id)
        check_epoch(entry, epoch)
        if entry is not None and entry.has_open_transaction(epoch):
            return None
        if self.verifications is None:
            self.verifications = Verifications()
        return self.verifications.begin(producer_id, epoch, sequence, new_protocol)

    def adopt(self, other: ProducerStates) -> None:
        """Continue with the state of another log, of which this one is a copy."""
        self.entries, self.transactions, self.verifications = other.entries, other.transactions, other.verifications
        self.awaited, self.led_since_ms, self.knows_all = other.awaited, other.led_since_ms, other.knows_all
        self.recalled_from = other.recalled_from

    # Snapshots

    def list_snapshots(self, names: Iterable[str]) -> None:
        """Note the snapshots among the names of the files in the folder."""
        stems = (name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self.snapshot_offsets = sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def load(self, log_start_offset: int, end_offset: int) -> int:
        """Replace the state by that of the newest valid snapshot at or below `end_offset`.

        Returns the offset from which batches must be replayed; `log_start_offset` when there is no snapshot. Deletes
        snapshots beyond `end_offset`, and any that is damaged. Producers that have expired are loaded, too: at the
        start of a broker a dynamic producer.id.expiration.ms is not known yet.
        """
        self.clear()
        for offset in reversed(self.snapshot_offsets.copy()):
            if offset <= end_offset:
                if offset < log_start_offset:
                    break
                entries = self._read_snapshot(offset)
                if entries is not None:
                    self._load_entries(entries)
                    self.recalled_from = offset if self.entries else None
                    return offset
            self.delete_snapshot(offset)
        return log_start_offset

    def load_earlier(self, offset: int) -> int:
        """Load the newest valid snapshot at or below the offset into this new object, and delete none. Returns the
        offset from which batches must be replayed."""
        for earlier in reversed(self.snapshot_offsets):
            if earlier <= offset and (entries := self._read_snapshot(earlier)) is not None:
                self._load_entries(entries)
                return earlier
        return 0

    def _read_snapshot(self, offset: int) -> list[ProducerEntry] | None:
        try:
            return parse_snapshot(self._files.read_bytes(self._path(offset)))
        except (ValueError, FileNotFoundError):
            return None

    def _load_entries(self, loaded: Iterable[ProducerEntry]) -> None:
        self.entries = {entry.producer_id: entry for entry in loaded}
        entries = [entry for entry in self.entries.values() if entry.transaction_first_offset >= 0]
        if entries:
            self.transactions = Transactions()
            for entry in sorted(entries, key=lambda entry: entry.transaction_first_offset):
                self.transactions.begin(entry.producer_id, entry.transaction_first_offset)

    def take_snapshot(self, offset: int) -> None:
        """Write the present state as that of all batches below `offset`. It is synced with the next flush."""
        if self.snapshot_offsets and self.snapshot_offsets[-1] >= offset:
            return
        path = self._path(offset)
        self._files.write_atomically(path, format_snapshot(self.entries.values()), sync=False)
        self.snapshot_offsets.append(offset)
        self.unsynced_snapshots.append(path)

    def sync_planned(self) -> None:
        """Note that a flush is planned that syncs the snapshots."""
        self.unsynced_snapshots = []

    def sync_failed(self, paths: list[str]) -> None:
        """Note that the planned flush has not synced these snapshots."""
        self.unsynced_snapshots += paths

    def distrust_snapshots(self, from_offset: int) -> None:
        """Note that the snapshots at or above the offset may not be synced: the next flush syncs them."""
        paths = [self._path(offset) for offset in self.snapshot_offsets if offset >= from_offset]
        self.unsynced_snapshots += [path for path in paths if path not in self.unsynced_snapshots]

    def delete_snapshot(self, offset: int) -> None:
        if offset in self.snapshot_offsets:
            self.snapshot_offsets.remove(offset)
            self._forget_unsynced(offset)
            self._files.unlink(self._path(offset))

    def delete_snapshots_above(self, end_offset: int) -> None:
        for offset in self.snapshot_offsets.copy():
            if offset > end_offset:
                self.delete_snapshot(offset)

    def mark_snapshot_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot at `offset`, if there is one, to *.deleted; returns the new path in a list. On a full
        disk as Segment.mark_deleted. After an error it can be called again."""
        if offset not in self.snapshot_offsets:
            return []
        path = self._path(offset)
        marked = [path + DELETED_SUFFIX]
        try:
            self._files.rename(path, marked[0])
        except FileNotFoundError:
            marked = []
        except OSError as error:
            if not is_full(error):
                raise
            self._files.unlink(path)
            marked = []
        self.snapshot_offsets.remove(offset)
        self._forget_unsynced(offset)
        return marked

    def remove_stray_snapshots(self, base_offsets: Iterable[int]) -> None:
        """Delete snapshots that no segment begins with, except the newest one if it lies beyond all of them (it was
        written when the log was closed)."""
        bases = set(base_offsets)
        newest = self.snapshot_offsets[-1] if self.snapshot_offsets else -1
        for offset in self.snapshot_offsets.copy():
            if offset not in bases and not (offset == newest and offset > max(bases, default=-1)):
                self.delete_snapshot(offset)

    def _path(self, offset: int) -> str:
        return file_stem(self._directory, offset) + SNAPSHOT_SUFFIX

    def _forget_unsynced(self, offset: int) -> None:
        path = self._path(offset)
        if path in self.unsynced_snapshots:
            self.unsynced_snapshots.remove(path)

    def _expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.transaction_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms


def _ahead(sequence: int, expected: int) -> int:
    """Return how far the sequence lies ahead of the expected one; negative if it lies behind."""
    ahead = (sequence - expected) & SEQUENCE_MASK
    return ahead if ahead < MAX_SEQUENCES_BACK else ahead - SEQUENCE_MASK - 1


def _stored_before(entry: ProducerEntry, first_sequence: int, high_watermark: int) -> KafkaError:
    # The batch that it repeats lies below the oldest one that is kept.
    committed = AppendedBatch._make(entry.batches[0]).first_offset <= high_watermark
    return KafkaError(
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER if committed else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        f"producer {entry.producer_id}, epoch {entry.epoch}: sequence {first_sequence} was stored before"
        + ("" if committed else ", and is not committed yet"),
    )
