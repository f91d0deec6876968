"""Requests that a client sends again and again, which are recognised by their bytes and need no handler.

A heartbeat repeats every byte from the client id on. An offset commit repeats all but some numbers. Each connection
keeps one request, decoded, and what serves it when it comes again (registry: `renewal`, `numbers`). Its response is the
one of before, encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from gregor.broker.net.responses import encode_frame
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.records.int64_fields import Int64Fields, int64_positions

if TYPE_CHECKING:
    from gregor.broker.registry import Entry, NumberedRenewal, Renewal

_INT32 = Struct(">i")


class RepeatedRequest:
    """A decoded request, and its bytes from the client id on. Once it is known how to renew it, also the response, and
    the generation of the authorizer's rules that allowed it."""

    __slots__ = ("client_id", "data", "entry", "frame", "generation", "renew", "request", "version")

    def __init__(self, entry: Entry, version: int, data: bytes, client_id: str | None, request: Any) -> None:
        self.entry = entry
        self.version = version
        self.data = data
        self.client_id = client_id
        self.request = request
        self.renew: Renewal | None = None
        self.frame = bytearray()
        self.generation = 0

    def learn(self, renew: Renewal, frame: bytearray, generation: int) -> None:
        """Keep how the request is renewed."""
        self.renew, self.frame, self.generation = renew, frame, generation

    def forget_renewal(self) -> None:
        """Let the handler serve the request the next time."""
        self.renew = None


class NumberedRequest:
    """A decoded request of which only some numbers differ from one time to the next (Numbers of the registry)."""

    __slots__ = ("_fields", "_frame", "_renew", "client_id", "entry", "generation", "parts", "request", "version")

    def __init__(self, entry: Entry, version: int, client_id: str | None, request: Any) -> None:
        self.entry = entry
        self.version = version
        self.generation = 0
        self.client_id = client_id
        self.request = request
        self.parts: list[Any] = [] if entry.numbers is None else entry.numbers.parts(request)
        self._fields: Int64Fields | None = None
        self._renew: NumberedRenewal | None = None
        self._frame = bytearray()

    @property
    def is_short(self) -> bool:
        """Whether it is worth while to keep the request."""
        numbers = self.entry.numbers
        return numbers is not None and 0 < len(self.parts) <= numbers.max_parts

    def serve(self, data: bytes, correlation_id: int) -> bytearray | None:
        """Serve a request with these bytes from the client id on; return the frame of its response. None: nothing has
        happened, and its handler must serve it."""
        fields, renew = self._fields, self._renew
        if fields is None or renew is None:
            return None
        numbers = fields.numbers(data)
        if numbers is None or not renew(numbers):
            return None
        frame = bytearray(self._frame)
        _INT32.pack_into(frame, SIZE_BYTES, correlation_id)
        return frame

    def is_repeated_by(self, later: NumberedRequest) -> bool:
        """Return whether a later request is the same but for its numbers. It replaces this one, which gets them."""
        if (
            later.entry is not self.entry
            or later.version != self.version
            or later.client_id != self.client_id
            or len(later.parts) != len(self.parts)
        ):
            return False
        self._set(self.parts, later.present())
        same: bool = later.request == self.request
        return same

    def learn(self, response: Any, renew: NumberedRenewal, data: bytes, generation: int) -> None:
        """Keep how the request with these bytes is served when it comes again, and the response."""
        present, request, version = self.present(), self.request, self.version
        encoded = request.encode(version)
        if not data.endswith(encoded):
            return  # an encoding with other bytes for the same values
        body = len(data) - len(encoded)

        def encode(numbers: Sequence[int]) -> bytes:
            self._set(self.parts, numbers)
            other: bytes = request.encode(version)
            return other

        positions = int64_positions(encode, len(present))
        self._set(self.parts, present)
        if positions is None or any(len(found) != 1 for found in positions):
            return
        self._fields = Int64Fields(data, [body + found[0] for found in positions])
        self._frame = encode_frame(self.entry, version, response)
        self._renew, self.generation = renew, generation

    def present(self) -> list[int]:
        """Return the numbers of the request."""
        numbers = self.entry.numbers
        return [] if numbers is None else [getattr(part, numbers.field) for part in self.parts]

    def _set(self, parts: list[Any], values: Sequence[int]) -> None:
        numbers = self.entry.numbers
        if numbers is not None:
            for part, value in zip(parts, values, strict=True):
                setattr(part, numbers.field, value)
