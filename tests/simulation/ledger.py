"""The invariants of each moment, and the promises to clients."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from gregor.protocol.records.batch import iter_batches
from gregor.replication.partition.partition import Partition
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Create, Delete, Operation, Set
from tests.simulation.node import rack_of
from tests.simulation.reading import READ_BYTES, bytes_below
from tests.simulation.virtual_time import EPOCH_MS

if TYPE_CHECKING:
    from gregor.storage.log.log import Log
    from tests.simulation.world import World

Key = tuple[str, int]
MIN_IN_SYNC = 2
DELETED_KNOWN_S = 5.0
"""After this time a broker has received all deletions from before its start."""
LAGGING_LONGEST = 1.5
"""Times replica.lag.time.max.ms: the check runs every half of that."""


class Violated(AssertionError):
    """An invariant does not hold."""


def is_internal(key: Key) -> bool:
    return key[0].startswith("__")


def is_compacted(key: Key) -> bool:
    return key[0] == "table" or is_internal(key)


def key_of(value: bytes) -> bytes | None:
    """A record's key, which is part of its value in compacted topics."""
    return value.partition(b"|")[2] or None


def is_there(records: dict[int, bytes], offset: int, value: bytes) -> bool:
    """Whether a log holds a record, or, where it is compacted, a later one of the same key in its place."""
    if offset in records:
        return records[offset] == value
    key = key_of(value)
    return key is not None and any(later > offset and key_of(other) == key for later, other in records.items())


def records_of(log: Log, start: int, end: int) -> dict[int, bytes]:
    """Values by offset."""
    found: dict[int, bytes] = {}
    offset = start
    while offset < end:
        piece = log.read(offset, READ_BYTES, end)
        data = piece.read()
        piece.release()
        before = offset
        for batch in iter_batches(data):
            for record in batch.records():
                found[record.offset] = bytes(record.value or b"")
            offset = batch.base_offset + batch.last_offset_delta + 1
        if offset == before:
            break
    return found


def latest(records: dict[int, bytes]) -> dict[bytes | None, tuple[int, bytes]]:
    """The last record of each key."""
    return {key_of(value): (offset, value) for offset, value in sorted(records.items())}


class Ledger:
    """All promises to clients, each checked when it is made; `violation` ends the run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: list[str] = []
        self.promised: dict[Key, dict[int, bytes]] = {}
        """Values by offset that were acknowledged with acks=all or read by a consumer."""
        self.acknowledged_count = 0
        self.read_count = 0
        self._stored: dict[Key, set[bytes]] = {}
        """Values that were acknowledged without an offset."""
        self._to_delete: dict[Key, int] = {}
        """The offsets below which a client has requested the deletion of records."""
        self._leaders: dict[tuple[Key, int], int] = {}
        self._states: dict[Key, nodes.PartitionState] = {}
        self._high_watermarks: dict[tuple[Key, int, int], int] = {}
        self._lagging: dict[tuple[Key, int, int], tuple[float, int]] = {}
        """The time since which a follower is seen to lag, and the time when it had last caught up."""

    def violation(self, text: str) -> None:
        self._world.trace(f"VIOLATION {text}")
        self.violations.append(text)

    # -- promises --------------------------------------------------------------------------------------------------

    def acknowledged(self, key: Key, base_offset: int, values: list[bytes], producer: str, sent_s: float) -> None:
        """`sent_s`: the time when the request of this response was sent."""
        self.acknowledged_count += len(values)
        last = base_offset + len(values) - 1
        copies = self._world.copies(key, last)
        if copies < MIN_IN_SYNC and not self._world.faults.has_lost_bytes(sent_s):
            self.violation(f"{key}: offset {last} was acknowledged to {producer} with {copies} copies of it")
        for offset, value in enumerate(values, base_offset):
            self._promise(key, offset, value, f"acknowledged to {producer}")

    def stored_before(self, key: Key, values: list[bytes]) -> None:
        """Note values whose repetition was recognised when their offset was no longer known."""
        self.acknowledged_count += len(values)
        self._stored.setdefault(key, set()).update(values)

    def read(self, key: Key, offset: int, value: bytes) -> None:
        self.read_count += 1
        self._promise(key, offset, value, "read")

    def _promise(self, key: Key, offset: int, value: bytes, how: str) -> None:
        known = self.promised.setdefault(key, {}).setdefault(offset, value)
        if known != value:
            self.violation(f"{key} offset {offset}: {value!r} {how}, but it was {known!r} before")

    # -- what may be deleted ---------------------------------------------------------------------------------------

    def to_delete(self, key: Key, share: float) -> int:
        """Where the deletion of a share of the promised records ends. It may happen from now on."""
        last = max(self.promised.get(key, {0: b""}))
        offset = self._to_delete[key] = max(self.deleted_below(key), int(last * share))
        return offset

    def deleted_below(self, key: Key) -> int:
        return self._to_delete.get(key, 0)

    def deleted(self, key: Key, offset: int, low_watermark: int) -> None:
        """A leader answers that no replica in sync has records below that any more."""
        if low_watermark < offset:
            self.violation(f"{key}: deletion below {offset} is answered with {low_watermark}")
        for broker_id in self.isr(key):
            log = self._world.log(broker_id, key)
            lives_s = self._world.loop.time() - self._world.machines[broker_id].booted_s
            if log is not None and log.log_start_offset < offset and lives_s > DELETED_KNOWN_S:
                self.violation(f"{key}: deleted is what lies below {offset}, but broker {broker_id} begins earlier")

    # -- what the cluster writes -----------------------------------------------------------------------------------

    def written(self, operations: list[Operation], session_id: int) -> None:
        """Check state nodes: epochs only grow, a leader is in sync, a new ISR member has all promised records. Check
        registrations: a broker that begins one leads nothing, as its last one has ended."""
        for operation in operations:
            if isinstance(operation, Create) and operation.path.startswith(f"{nodes.BROKER_IDS}/"):
                self._registered(int(operation.path.rpartition("/")[2]), session_id)
            if isinstance(operation, (Create, Set)) and operation.path.endswith("/state"):
                words = operation.path.split("/")
                self._state_written((words[3], int(words[5])), nodes.decode_state(operation.data), session_id)
            elif isinstance(operation, Delete) and operation.path.endswith("/state"):
                words = operation.path.split("/")
                self._forget((words[3], int(words[5])))

    def _registered(self, broker_id: int, session_id: int) -> None:
        node = self._world.machines[broker_id].running
        session = None if node is None else node.store.client.session
        if node is not None and session is not None and session.id == session_id:
            led = [key for key, partition in node.replicas.partitions.items() if partition.is_leader]
            if led:
                self.violation(f"broker {broker_id} registers anew and still leads {led}")

    def _forget(self, key: Key) -> None:
        """The topic is deleted: another of its name begins anew."""
        self._states.pop(key, None)
        self._leaders = {place: leader for place, leader in self._leaders.items() if place[0] != key}

    def _state_written(self, key: Key, state: nodes.PartitionState, session_id: int) -> None:
        self._world.trace(
            f"state {key[0]}-{key[1]}: leader {state.leader} epoch {state.leader_epoch} isr {state.isr}"
            f" by controller epoch {state.controller_epoch}"
        )
        before = self._states.get(key)
        self._states[key] = state
        if state.leader >= 0 and state.leader not in state.isr:
            self.violation(f"{key}: leader {state.leader} is not in the ISR {state.isr}")
        if not state.isr:
            self.violation(f"{key}: empty ISR")
        found = self._world.zk.tree.get(nodes.CONTROLLER_EPOCH, None)
        if found is None or state.controller_epoch != nodes.decode_controller_epoch(found[0]):
            self.violation(f"{key}: a controller that was replaced writes {state}")
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch or state.controller_epoch < before.controller_epoch:
            self.violation(f"{key}: {state} after {before}")
        if state.leader_epoch == before.leader_epoch and state.leader != before.leader:
            self.violation(f"{key}: two leaders in epoch {state.leader_epoch}: {before.leader}, {state.leader}")
        for broker_id in set(state.isr) - set(before.isr):
            if self._world.is_known(broker_id, session_id):
                self._has_all(key, broker_id, "joins the ISR")
        if state.leader >= 0 and state.leader != before.leader and self._world.is_known(state.leader, session_id):
            self._has_all(key, state.leader, "is elected")
        leading = self._world.partition(state.leader, key) if state.leader >= 0 else None
        if leading is not None and leading.is_leader:
            self._counts_all(key, leading)

    def _counts_all(self, key: Key, partition: Partition) -> None:
        """A leader waits for all replicas that the controller counts as in sync, notified or not (KIP-497)."""
        state = self._states[key]
        if state.leader == partition.local_id and state.leader_epoch == partition.leader_epoch:
            missing = set(state.isr) - partition.in_sync.maximal_isr
            if missing:
                self.violation(f"{key}: leader {partition.local_id} does not wait for {missing}, who are in sync")

    def leader_epoch(self, key: Key) -> int:
        """Return the leader epoch in ZooKeeper; -1 before there is one."""
        state = self._states.get(key)
        return -1 if state is None else state.leader_epoch

    def leader(self, key: Key) -> tuple[int, int]:
        """Return the leader in ZooKeeper and its epoch; -1 before there is one."""
        state = self._states.get(key)
        return (-1, -1) if state is None else (state.leader, state.leader_epoch)

    def isr(self, key: Key) -> tuple[int, ...]:
        state = self._states.get(key)
        return () if state is None else state.isr

    def _has_all(self, key: Key, broker_id: int, what: str) -> None:
        log = self._world.log(broker_id, key)
        promised = self.promised.get(key)
        if log is None or not promised:
            return
        last = max(promised)
        if log.log_end_offset <= last:
            self.violation(f"{key}: broker {broker_id} {what} with {log.log_end_offset} records; {last} was promised")
        elif not is_there(records_of(log, last, self._end(key, log, last + 1)), last, promised[last]):
            self.violation(f"{key}: broker {broker_id} {what} with another record at {last} than was promised")

    def sent_to(self, key: Key, leader: int, replica: int, rack: str) -> None:
        """A leader sent a consumer of this rack to another replica."""
        if rack_of(leader) == rack:
            self.violation(f"{key}: a consumer of {rack} is sent away from leader {leader}, which is there")
        if rack_of(replica) != rack:
            self.violation(f"{key}: a consumer of {rack} is sent to broker {replica}, which is elsewhere")

    @staticmethod
    def _end(key: Key, log: Log, end: int) -> int:
        """Up to where one must read to find a record, or what stands in its place."""
        return log.log_end_offset if is_compacted(key) else end

    def roles(self, leaders: Iterable[Partition], _followers: Iterable[Partition]) -> None:
        """A broker applied a change of roles."""
        for partition in leaders:
            key = partition.topic, partition.partition
            known = self._leaders.setdefault((key, partition.leader_epoch), partition.local_id)
            self._world.trace(f"broker {partition.local_id} leads {key[0]}-{key[1]} in epoch {partition.leader_epoch}")
            if known != partition.local_id:
                self.violation(f"{key}: {known} and {partition.local_id} both lead in epoch {partition.leader_epoch}")
            state = self._states.get(key)
            if state is not None and state.leader_epoch == partition.leader_epoch:
                self._has_all(key, partition.local_id, "leads")

    # -- from time to time -----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check that logs are equal below the high watermark, and that it never falls while a broker leads."""
        for key in self._world.all_keys:
            logs = []
            for broker_id in self._world.broker_ids:
                partition = self._world.partition(broker_id, key)
                if partition is None or partition.log is None:
                    continue
                logs.append((broker_id, partition.log))
                if partition.log_start_offset > self.deleted_below(key):
                    self.violation(f"{key}: broker {broker_id} begins at {partition.log_start_offset}")
                if partition.is_leader:
                    # Of one life: the next knows the last checkpoint, and shows no client an older end (KIP-207).
                    led = key, partition.leader_epoch, self._world.machines[broker_id].lives
                    known = self._high_watermarks.get(led, 0)
                    if partition.high_watermark < known:
                        self.violation(f"{key}: high watermark fell from {known} to {partition.high_watermark}")
                    self._high_watermarks[led] = partition.high_watermark
                    self._look_at_isr(key, partition)
            for (first_id, first), (second_id, second) in pairwise(logs):
                end = min(first.high_watermark, second.high_watermark)
                # Records that a leader has deleted may differ in a follower, until it begins where the leader does. The
                # leader has forgotten the epochs of these records, so the follower does not truncate them.
                start = max(first.log_start_offset, second.log_start_offset, self.deleted_below(key))
                if (
                    end > start
                    and not is_compacted(key)
                    and bytes_below(first, start, end) != bytes_below(second, start, end)
                ):
                    self.violation(f"{key}: brokers {first_id} and {second_id} differ below {end}")

    def _look_at_isr(self, key: Key, partition: Partition) -> None:
        """A lagging replica does not stay in the ISR; but the controller may be out of reach."""
        world = self._world
        longest_s = LAGGING_LONGEST * int(world.settings["replica.lag.time.max.ms"]) / 1000
        self._counts_all(key, partition)
        process = world.machines[partition.local_id].process
        now_ms = EPOCH_MS + int(world.loop.time() * 1000) + process.clock_ahead_ms
        for broker_id in partition.replicas:
            place = key, partition.leader_epoch, broker_id
            if (
                broker_id not in partition.isr
                or process.frozen
                or partition.in_sync.proposed_isr is not None
                or partition.in_sync.keeps_up(broker_id, partition.log_end_offset, now_ms)
            ):
                self._lagging.pop(place, None)
                continue
            caught_up_ms = partition.in_sync.followers[broker_id].last_caught_up_ms
            since_s, caught_up_before_ms = self._lagging.get(place, (0.0, -1))
            if caught_up_before_ms != caught_up_ms:
                self._lagging[place] = world.loop.time(), caught_up_ms  # it has caught up since the last check
            elif world.loop.time() - since_s > longest_s:
                self.violation(f"{key}: broker {broker_id} lags behind {partition.local_id} and stays in the ISR")

    # -- in the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Check, after all faults, that each promised record is there once, and that all replicas are equal."""
        world = self._world
        for key in world.all_keys:
            logs = [log for broker_id in world.replicas(key) if (log := world.log(broker_id, key)) is not None]
            first = logs[0]
            end = first.log_end_offset
            for log in logs:
                if log.log_start_offset > self.deleted_below(key):
                    self.violation(f"{key}: a replica begins at {log.log_start_offset}")
                    return
            start = max(log.log_start_offset for log in logs)
            for log in logs[1:]:
                if log.log_end_offset != end or (
                    not is_compacted(key) and bytes_below(log, start, end) != bytes_below(first, start, end)
                ):
                    self.violation(f"{key}: replicas differ in the end")
            if is_internal(key):
                continue
            records = records_of(first, start, end)
            for other in logs[1:] if is_compacted(key) else ():
                if latest(records_of(other, start, end)) != latest(records):
                    self.violation(f"{key}: replicas have different latest records in the end")
            for offset, value in sorted(self.promised.get(key, {}).items()):
                if offset >= start and not is_there(records, offset, value):
                    self.violation(f"{key} offset {offset}: {value!r} was promised, {records.get(offset)!r} is there")
            missing = self._stored.get(key, set()) - set(records.values())
            if missing and not self.deleted_below(key) and not is_compacted(key):
                self.violation(f"{key}: {sorted(missing)} are said to have been stored before, and are not there")
            seen: dict[bytes, int] = {}
            last: dict[bytes, int] = {}
            for offset, value in sorted(records.items()):
                producer, _, number = value.partition(b"|")[0].partition(b".")
                if producer.startswith(b"i"):
                    if value in seen:
                        self.violation(f"{key}: {value!r} is there twice, at {seen[value]} and {offset}")
                    elif int(number) < last.get(producer, 0):
                        self.violation(f"{key}: {value!r} at {offset} comes after a later one of its producer")
                    last[producer] = int(number)
                seen[value] = offset
