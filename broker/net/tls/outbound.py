"""The sending side of an encrypted connection: everything passes through the transport, which encrypts it.

Nothing but the transport may write to the socket, so regions of files are read in pieces and written to the transport
until that holds unsent bytes. As without TLS the pieces are read from the page cache, and a thread reads what is not
in it ahead.
"""

from __future__ import annotations

import os

from gregor.broker.net.outbound import FileRegion, NotCached, Outbound, read_cached, window

PIECE_BYTES = 256 * 1024
"""One write to the transport: 16 records of TLS, and less than the transport and the kernel keep of it."""

_BURST_BYTES = 1024 * 1024
"""After this many bytes, about a millisecond of encryption, other work proceeds."""


class EncryptedOutbound(Outbound):
    __slots__ = ()

    def _limit_buffer(self) -> None:
        """Leave that to `begin`: bytes of the handshake may wait, so the transport pauses its protocol at once."""

    def begin(self) -> None:
        """Let the transport report each moment in which it holds bytes. A limit of zero would pause an empty one."""
        self._transport.set_write_buffer_limits(high=1, low=0)

    def _write_before_region(self, parts: list[bytes | bytearray], region: FileRegion) -> None:
        if parts:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _send_region(self, region: FileRegion) -> bool:
        start, size = region.position, region.size_bytes
        burst_end = min(self._region_sent + _BURST_BYTES, size)
        try:
            source = region.fileno()
            while self._region_sent < size:
                if self.blocked:
                    return False
                if self._region_sent >= burst_end:
                    self.blocked = True
                    self._loop.call_soon(self._proceed)
                    return False
                position = start + self._region_sent
                wanted = min(PIECE_BYTES, size - self._region_sent)
                view = window()[:wanted]
                try:
                    if position < self._read_ahead_end:
                        got = os.preadv(source, [view], position)
                    else:
                        got = read_cached(source, view, position)
                except BlockingIOError:
                    raise NotCached(wanted) from None
                if got == 0:  # the file is shorter than the response's length field: the stream is broken
                    self._transport.abort()
                    return True
                self._region_sent += got
                # The transport keeps what it cannot encrypt at once, so it gets bytes of its own.
                self._transport.write(bytes(view[:got]))
        except NotCached as missing:
            self._wait_for_disk(region.fileno(), missing.size_bytes, start + self._region_sent)
            return False
        except OSError:
            self._transport.abort()
        return True

    def _proceed(self) -> None:
        if not self._transport_paused:
            self._resume()
