"""HTTP/1.1 of the listener for metrics: GET and HEAD without a body, parsed by h11, which survives any bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import h11

from gregor.broker.log import logger

MAX_CONNECTIONS = 16
"""More at a time are closed at once: a scraper needs one."""
MAX_HEAD_BYTES = 16 * 1024
PART_BYTES = 64 * 1024
"""Of a response in one write: a socket accepts that much at once, and what it does not accept is copied."""
IDLE_S = 75.0
"""A connection is closed that sends no whole request, or does not receive its response, for this time."""
TEXT = "text/plain; charset=utf-8"


class Response(NamedTuple):
    status: HTTPStatus
    content_type: str
    pieces: Sequence[bytes]


class Request(NamedTuple):
    """`path` without the query; names of headers in lower case."""

    path: str
    headers: Mapping[bytes, bytes]


Respond = Callable[[Request], Awaitable[Response]]


def text_response(status: HTTPStatus, text: str) -> Response:
    return Response(status, TEXT, [text.encode()])


class HttpConnections:
    """The open connections of one listener."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._tasks: set[asyncio.Task[None]] = set()

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection that was accepted."""
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        try:
            while True:
                async with asyncio.timeout(IDLE_S):
                    request = await connection.next_request()
                if request is None:
                    return
                response = request if isinstance(request, Response) else await self._respond(request)
                async with asyncio.timeout(IDLE_S):
                    if not await connection.send(response):
                        return
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("a request to gregor.metrics.listener could not be answered")
        finally:
            writer.close()


def _parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join the pieces to parts of about PART_BYTES."""
    part: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        part.append(piece)
        size_bytes += len(piece)
        if size_bytes >= PART_BYTES:
            yield b"".join(part)
            part, size_bytes = [], 0
    if part:
        yield b"".join(part)


class _Connection:
    """One connection: h11's state of it, and its streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._reader = reader
        self._writer = writer
        self._is_head = False

    async def next_request(self) -> Request | Response | None:
        """Return the next request, or the response to one that cannot be served; None at the end of the connection."""
        found: Request | Response | None = None
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    data = await self._reader.read(MAX_HEAD_BYTES)
                    if not data and self._http.their_state is h11.IDLE:
                        return None
                    self._http.receive_data(data)
                elif isinstance(event, h11.Request):
                    found = self._begun(event)
                elif isinstance(event, h11.Data):
                    return text_response(HTTPStatus.BAD_REQUEST, "requests to this listener have no body\n")
                elif isinstance(event, h11.EndOfMessage):
                    return found
                else:  # ConnectionClosed, or PAUSED after a request to change the protocol
                    return None
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            return text_response(status, f"{status.phrase}: {error}\n")

    def _begun(self, event: h11.Request) -> Request | Response:
        self._is_head = event.method == b"HEAD"
        if event.method not in (b"GET", b"HEAD"):
            return text_response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served\n")
        target = bytes(event.target).decode("ascii", "replace")
        return Request(target.partition("?")[0], dict(event.headers))

    async def send(self, response: Response) -> bool:
        """Send a response. Return whether the connection can have another request."""
        http, writer = self._http, self._writer
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return False
        size_bytes = sum(map(len, response.pieces))
        headers = [("Content-Type", response.content_type), ("Content-Length", str(size_bytes))]
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        if response.status == HTTPStatus.UNAUTHORIZED:
            headers.append(("WWW-Authenticate", 'Basic realm="gregor"'))
        if http.their_state is not h11.DONE:  # the rest of the request is not read
            headers.append(("Connection", "close"))
        reason = response.status.phrase.encode()
        self._write(http.send(h11.Response(status_code=response.status, headers=headers, reason=reason)))
        if not self._is_head:
            for part in _parts(response.pieces):
                self._write(http.send(h11.Data(data=part)))
                await writer.drain()
                await asyncio.sleep(0)  # a reader as fast as this would keep the loop
        self._write(http.send(h11.EndOfMessage()))
        await writer.drain()
        if not self._is_done():
            with suppress(OSError):
                writer.write_eof()
            return False
        http.start_next_cycle()
        return True

    def _is_done(self) -> bool:
        """Whether both sides are, so that another request may come."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def _write(self, data: bytes | None) -> None:
        if data:
            self._writer.write(data)
