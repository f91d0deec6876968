"""The receiving side of a connection: memory for an unfinished request, its share of the receive budget, when to read.

A request that is whole in one read stays in the buffer that all connections share; the bytes of a longer
one are kept in an owned buffer (net.receive_buffers), which returns to the pool once it holds no partial frame.

Reading stops while a request is in progress and another one has arrived, while the receive budget has no room for a
long frame, where `queued.max.requests` wait already, while any request is in progress, and while the client is muted
because it exceeded a quota.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gregor.broker.net.receive_buffers import SHARED_BYTES, Admission, OwnedBuffer
from gregor.broker.registry import entry_of
from gregor.protocol.framing import HEAD_BYTES, SIZE_BYTES, FramingError, Receiver, request_head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.registry import Entry

MIN_PROGRESS_BYTES = 64 * 1024
"""The part of a long frame that must arrive between two sweeps while other frames wait for its memory."""


class Inbound:
    """The receiving side of one connection."""

    __slots__ = (
        "_admission",
        "_budget",
        "_closed",
        "_handlers",
        "_held",
        "_muted",
        "_pool",
        "_requests",
        "_seen_bytes",
        "_stuck_sweeps",
        "_transport",
        "busy",
        "expects_long_frame",
        "owned",
        "queued",
        "reading",
        "receiver",
        "working",
    )

    def __init__(self, broker: ConnectionContext, transport: asyncio.Transport) -> None:
        self._pool = broker.buffers
        self._budget = broker.receive_budget
        self._requests = broker.connections
        self._handlers = broker.handlers
        self._transport = transport
        self._admission: Admission | None = None
        self._held: Admission | None = None
        self._seen_bytes = self._stuck_sweeps = 0
        self._closed = self._muted = False
        self.receiver = Receiver(broker.max_request_bytes)
        self.owned: OwnedBuffer | None = None
        self.expects_long_frame = False
        self.busy = False
        """The next request must not be dispatched: one is in progress, or the client is muted."""
        self.working = False
        """A request is in progress for which the next ones have to wait."""
        self.queued = False
        """A whole request has arrived and waits for an earlier one of this connection."""
        self.reading = True

    def serve(self, handlers: Mapping[int, Entry], receiver: Receiver) -> None:
        """Receive requests of these APIs, or other frames, from the next one on."""
        receiver.continue_from(self.receiver)
        self._handlers, self.receiver = handlers, receiver

    def close(self) -> None:
        """Release everything but the admission that `hold` keeps."""
        self._closed = True
        self.unqueue()
        self.release()

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes, where the shared buffer may not do."""
        owned, receiver = self.owned, self.receiver
        if owned is None:
            owned = self._pool.acquire_warm()
            if owned is None:
                return self._pool.shared_view
            self.owned = owned
            receiver.clear()
        elif self._admission is None:
            return owned.view[receiver.end : SHARED_BYTES]
        elif receiver.end == owned.capacity:
            owned.grow(self._pool.next_capacity(owned, receiver.frame_bytes))
        return owned.view[receiver.end :]

    def received(self, size_bytes: int) -> bool:
        """Count bytes received into the owned buffer; return whether they must be processed."""
        receiver = self.receiver
        receiver.end += size_bytes
        # Without an admission a long frame is received up to SHARED_BYTES; then it needs one.
        return (
            not size_bytes
            or receiver.end - receiver.begin >= receiver.frame_bytes
            or (self._admission is None and receiver.end >= SHARED_BYTES)
        )

    def keep(self, view: memoryview, start: int, end: int) -> None:
        """Keep `view[start:end]`, which begins with a frame that is not whole or cannot be dispatched yet. Raises
        FramingError."""
        receiver, owned = self.receiver, self.owned
        receiver.keep(view, start, end)
        if owned is None:
            owned = self.owned = self._pool.acquire()
            owned.view[: end - start] = view[start:end]
        else:
            owned.compact(start, end)
        frame_bytes, whole = receiver.frame_bytes, receiver.is_whole
        if self._admission is not None and self._admission.frame_bytes != frame_bytes:
            self._admission.release()
            self._admission = None
        full = False
        if frame_bytes > SHARED_BYTES and not whole and self._admission is None:
            self._check_head(owned.view)
            full = receiver.end >= SHARED_BYTES
            # Behind a request in progress the frame could not be dispatched: it gets no admission yet.
            if full and not self.busy:
                self._admission = self._budget.admit(frame_bytes, self.resume_reading)
                self._seen_bytes, self._stuck_sweeps = receiver.end, 0
        if whole and not self.queued and not self._muted:
            self.queued = True
            self._requests.count_queued(1)
        admission = self._admission
        if whole or (full and admission is None) or (admission is not None and not admission.admitted):
            self.pause_reading()
        elif not self.reading:
            self.resume_reading()

    def _check_head(self, view: memoryview) -> None:
        """Refuse a long frame of an unknown API before it is received, and before it has an admission."""
        if self.receiver.end >= SIZE_BYTES + HEAD_BYTES:
            key, version, _ = request_head(view, SIZE_BYTES)
            try:
                entry_of(self._handlers, key, version)
            except FramingError as error:
                raise FramingError(f"a request of {self.receiver.frame_bytes} bytes: {error}") from None

    def release(self) -> None:
        """Return the buffer and its share of the budget, when no partial frame is left."""
        if self.owned is not None:
            self._pool.give_back(self.owned)
            self.owned = None
        if self._admission is not None:
            self._admission.release()
            self._admission = None
        if not self.reading:
            self.resume_reading()

    def detach_buffer(self, end: int) -> OwnedBuffer | None:
        """Return the owned buffer, which the caller must give back, if nothing is received behind `end`."""
        if end != self.receiver.end:
            return None
        owned, self.owned = self.owned, None
        return owned

    def reattach_buffer(self, owned: OwnedBuffer) -> None:
        """Own a buffer again that was detached just now."""
        self.owned = owned

    def detach_admission(self) -> Admission | None:
        """Return the admission, which the caller must release."""
        admission, self._admission = self._admission, None
        return admission

    # ---- when to read ---------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        if self.reading and not self._closed:
            self.reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        full = self.busy and self._requests.queued >= self._requests.max_queued
        if not (self.reading or self._closed or self._muted or full):
            self.reading = True
            self._transport.resume_reading()

    def unqueue(self) -> None:
        """Uncount the request that waits: it will be dispatched now, or never."""
        if self.queued:
            self.queued = False
            self._requests.count_queued(-1)

    def work(self) -> None:
        """Begin a request that the next ones have to wait for. Where enough of them wait, no more are read."""
        self.busy = self.working = True
        if self._requests.queued >= self._requests.max_queued:
            self.pause_reading()

    def end_work(self) -> None:
        self.working = False
        self.busy = self._muted

    def hold(self) -> None:
        """Begin such a request that keeps its admission, even if the connection ends meanwhile."""
        self.busy = self.working = True
        self._held = self.detach_admission()

    def mute(self) -> None:
        """Stop reading and dispatching until `unmute`, whatever is in progress. A request that is here does not count
        among those that wait."""
        self.busy = self._muted = True
        self.unqueue()
        self.pause_reading()

    def unmute(self) -> None:
        self._muted = False
        self.busy = self.working

    def end_hold(self) -> None:
        self.end_work()
        if self._held is not None:
            self._held.release()
            self._held = None

    @property
    def is_contended(self) -> bool:
        """Whether an unfinished frame has memory that others wait for."""
        admission = self._admission
        return admission is not None and admission.admitted and admission.contended and not self.busy

    def is_stuck(self, max_sweeps: int) -> bool:
        """Return whether almost nothing of a contended frame arrived for `max_sweeps` sweeps. Called once in each."""
        progress_bytes, self._seen_bytes = self.receiver.end - self._seen_bytes, self.receiver.end
        self._stuck_sweeps = 0 if progress_bytes >= MIN_PROGRESS_BYTES else self._stuck_sweeps + 1
        return self._stuck_sweeps > max_sweeps
