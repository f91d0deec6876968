"""The writes of a response: parts of a size that a socket accepts at once, with the loop's other work in between."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pytest

from gregor.broker.metrics.http import PART_BYTES, TEXT, HttpConnections, Request, Response

PIECE = b"a line\n" * 600


class Writer:
    """A connection that accepts everything at once. Notes each write, and the turn of the loop that it belongs to."""

    def __init__(self) -> None:
        self.turn = 0
        self.written: list[tuple[int, bytes]] = []

    def write(self, data: bytes) -> None:
        self.written.append((self.turn, data))

    async def drain(self) -> None:
        pass

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("sizes", [[600] * 80, [600, 0, 3 * PART_BYTES, 1]])
def test_a_response_is_written_in_parts_between_which_other_work_proceeds(sizes: list[int]) -> None:
    pieces = [(PIECE * (1 + size // len(PIECE)))[:size] for size in sizes * 10]

    async def respond(_request: Request) -> Response:
        return Response(HTTPStatus.OK, TEXT, pieces)

    async def test() -> list[tuple[int, bytes]]:
        reader, writer = asyncio.StreamReader(), Writer()
        reader.feed_data(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        reader.feed_eof()
        connections = HttpConnections(respond)
        connected: Any = writer
        connections.accepted(reader, connected)
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
            writer.turn += 1
        return writer.written

    (_, head), *parts = asyncio.run(test())
    assert f"Content-Length: {sum(map(len, pieces))}".encode().lower() in head.lower()
    assert b"".join(part for _, part in parts) == b"".join(pieces)
    assert max(len(part) for _, part in parts) < PART_BYTES + max(sizes)
    assert len(parts) <= 1 + sum(sizes) * 10 // PART_BYTES, "small pieces are joined"
    turns = [turn for turn, _ in parts]
    assert len(set(turns)) == len(turns), "the loop does nothing else between two writes"
