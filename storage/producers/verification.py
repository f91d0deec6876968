"""Verification that a transaction is open at its coordinator, before its first batch is appended (KIP-890, part 1).

A batch of a zombie that arrives behind the marker of its transaction would begin another one, which nothing ends. So
the leader of the partition verifies with the transaction coordinator that the partition belongs to the open
transaction. The answer comes later, and a marker may be appended in between. Therefore the request gets a guard before
it waits; an append with a guard that is no longer the current one is refused. (Kafka's VerificationStateEntry and
VerificationGuard.)
"""

from __future__ import annotations

from gregor.protocol.errors import ErrorCode, KafkaError


class VerificationGuard:
    """A verification under way. Requests of one producer that arrive meanwhile share it."""

    __slots__ = ("epoch", "expires_from_ms", "lowest_sequence", "new_protocol")

    def __init__(self, epoch: int, sequence: int, new_protocol: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of the batches that were verified: one with a higher sequence must not be appended before that one."""
        self.new_protocol = new_protocol
        """The producer gets a new epoch with each transaction (transaction.version 2)."""
        self.expires_from_ms: int | None = None

    def join(self, epoch: int, sequence: int) -> None:
        """Note another batch that waits for the answer."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence

    def is_over(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether an earlier call was `expiration_ms` ago. The first one begins that time, and one after the
        clock was set back begins it again."""
        if self.expires_from_ms is None or now_ms < self.expires_from_ms:
            self.expires_from_ms = now_ms
            return False
        return now_ms - self.expires_from_ms >= expiration_ms

    def check_sequence(self, producer_id: int, sequence: int, knows_batches: bool) -> None:
        """Raise OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that another one must precede. Batches of a coordinator have
        no sequence (-1)."""
        expected = 0 if self.new_protocol and not knows_batches else self.lowest_sequence
        if sequence > expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: sequence {expected} begins its transaction in this partition, got {sequence}",
            )


OptionalGuard = VerificationGuard | None
"""None: the transaction is open in the log already, and no verification is needed."""


class Verifications:
    """The guards of one log, by producer id. A log without transactions has no such object."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def begin(self, producer_id: int, epoch: int, sequence: int, new_protocol: bool) -> VerificationGuard:
        """Return the guard of the producer; a new one unless a verification is under way."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard(epoch, sequence, new_protocol)
        guard.join(epoch, sequence)
        return guard

    def current(self, producer_id: int) -> OptionalGuard:
        """Return the guard of the verification that is under way."""
        return self._guards.get(producer_id)

    def appended(self, producer_id: int, epoch: int, is_marker: bool) -> None:
        """Note that a transactional batch or a marker was appended. The guard stays if a marker ends the transaction
        before the one that is verified: with the new protocol a marker has the epoch of the next transaction."""
        guard = self._guards.get(producer_id)
        if guard is not None and not (is_marker and guard.new_protocol and guard.epoch == epoch):
            del self._guards[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove the guards that were there at a call `expiration_ms` ago: their requests have ended."""
        for producer_id, guard in list(self._guards.items()):
            if guard.is_over(now_ms, expiration_ms):
                del self._guards[producer_id]
