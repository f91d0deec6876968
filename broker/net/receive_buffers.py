"""Memory for requests that arrive in pieces: one buffer shared by all connections, and owned ones that grow with the
received bytes.

A request that is whole in one read never leaves the shared buffer. The connection keeps the bytes of a longer one in an
`OwnedBuffer`: private anonymous memory, enlarged by mremap as it fills, so that a peer that announces 100 MB and sends
nothing costs nothing, and received bytes are not copied again at each step. `ReceiveBudget` limits the memory of all
unfinished requests (`queued.max.request.bytes`).
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable

SHARED_BYTES = 64 * 1024
"""Size of the shared buffer, and so the limit of the bytes that are copied when the first read ends inside a frame."""

_FIRST_BYTES = 256 * 1024
_KEEP_BYTES = 2 * 1024 * 1024
_KEEP_BUFFERS = 4

DEFAULT_BUDGET_BYTES = 64 * 1024 * 1024
"""Used for queued.max.request.bytes=-1: Apache Kafka then has no limit but its heap; a process without one needs a
number.
"""

ORDINARY_FRAME_BYTES = 2 * 1024 * 1024
"""Requests up to this size have half of the budget to themselves: large ones cannot keep them out."""


class OwnedBuffer:
    """Growing memory of one unfinished frame. `view` is the writable whole; it changes when the buffer grows."""

    __slots__ = ("_memory", "capacity", "view")

    def __init__(self, capacity: int) -> None:
        self._memory = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.capacity = capacity
        self.view = memoryview(self._memory)

    def grow(self, capacity: int) -> None:
        """Enlarge to `capacity` and keep the received bytes. No other view of the memory may be in use."""
        self.view.release()
        try:
            self._memory.resize(capacity)
        except BufferError:  # a view of an earlier request is still referenced, for example by an exception's traceback
            memory = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory[: self.capacity] = self._memory[:]
            self._memory = memory
        self.capacity = capacity
        self.view = memoryview(self._memory)

    def compact(self, begin: int, end: int) -> None:
        """Move the bytes from `begin` to `end` to the start."""
        if begin:
            self.view[: end - begin] = self.view[begin:end]


class BufferPool:
    """The shared buffer, and a few owned ones kept warm: the first touch of fresh pages costs as much as the read
    itself.
    """

    __slots__ = ("_free", "shared", "shared_view")

    def __init__(self) -> None:
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self._free: list[OwnedBuffer] = []

    def acquire(self) -> OwnedBuffer:
        return self._free.pop() if self._free else OwnedBuffer(_FIRST_BYTES)

    def give_back(self, buffer: OwnedBuffer) -> None:
        """Return a buffer, whose memory may be reused at once; one that is not kept is freed."""
        if buffer.capacity <= _KEEP_BYTES and len(self._free) < _KEEP_BUFFERS:
            self._free.append(buffer)

    def acquire_warm(self) -> OwnedBuffer | None:
        """Return a kept buffer, if there is one, for a connection whose next frame will probably not fit the shared
        one."""
        return self._free.pop() if self._free else None

    @staticmethod
    def next_capacity(buffer: OwnedBuffer, frame_bytes: int) -> int:
        """Return the next capacity of a full buffer: four times the present one, and never above `frame_bytes`."""
        return min(buffer.capacity * 4, frame_bytes)


class ReceiveBudget:
    """Decides which unfinished frames may be received further.

    Each frame requests admission once, with its whole size. Ordinary frames and large ones have half of the budget
    each. An ordinary one is admitted as soon as there is room for it, before longer ones that wait: the gap that two
    megabytes do not fit serves many short requests. Large frames are admitted in the order of their requests, and one
    alone always, so that a frame larger than the budget is received too. The callback of a frame that had to wait is
    called when it is admitted.

    Invariant: `used` of a lane is the sum of the sizes it admitted and that were not released.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes if limit_bytes > 0 else DEFAULT_BUDGET_BYTES
        half = self.limit_bytes // 2
        self._lanes = (_Lane(half, overtaking=True), _Lane(half, overtaking=False))

    def admit(self, frame_bytes: int, resume: Callable[[], None]) -> Admission:
        """Request admission of a frame of `frame_bytes`. If the result is not `admitted` yet, `resume` is called once
        it is.
        """
        return self._lanes[frame_bytes > ORDINARY_FRAME_BYTES].admit(frame_bytes, resume)

    @property
    def used_bytes(self) -> int:
        """The sizes of all frames that are admitted and not yet released."""
        return sum(lane.used for lane in self._lanes)

    @property
    def waiting(self) -> int:
        """Frames that are not admitted yet."""
        return sum(len(lane.queue) for lane in self._lanes)


class Admission:
    """The share of one frame in the budget, until `release()`."""

    __slots__ = ("_lane", "_resume", "admitted", "frame_bytes", "released")

    def __init__(self, lane: _Lane, frame_bytes: int, resume: Callable[[], None]) -> None:
        self._lane = lane
        self._resume = resume
        self.frame_bytes = frame_bytes
        self.admitted = False
        self.released = False

    @property
    def contended(self) -> bool:
        """Whether other frames wait for the memory of this one."""
        return bool(self._lane.queue)

    def release(self) -> None:
        """Return the share: the request is handled, or its connection has ended. Idempotent."""
        if not self.released:
            self.released = True
            self._lane.release(self)

    def go(self) -> None:
        self.admitted = True
        self._resume()


class _Lane:
    __slots__ = ("limit_bytes", "overtaking", "queue", "used")

    def __init__(self, limit_bytes: int, *, overtaking: bool) -> None:
        self.limit_bytes = limit_bytes
        self.overtaking = overtaking
        self.used = 0
        self.queue: deque[Admission] = deque()

    def admit(self, frame_bytes: int, resume: Callable[[], None]) -> Admission:
        admission = Admission(self, frame_bytes, resume)
        if (not self.queue or self.overtaking) and self._fits(frame_bytes):
            self.used += frame_bytes
            admission.admitted = True
        else:
            self.queue.append(admission)
        return admission

    def _fits(self, frame_bytes: int) -> bool:
        return self.used == 0 or self.used + frame_bytes <= self.limit_bytes

    def release(self, admission: Admission) -> None:
        if admission.admitted:
            self.used -= admission.frame_bytes
        else:
            self.queue.remove(admission)
        for waiting in list(self.queue):
            if self._fits(waiting.frame_bytes):
                self.queue.remove(waiting)
                self.used += waiting.frame_bytes
                waiting.go()
            elif not self.overtaking:
                break
