"""The socket of a running server: there while it runs, gone after a clean stop, one order a connection."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.admin_socket.address import SOCKET_NAME, is_own_user, socket_path
from gregor.broker.server import Server
from gregor.config.broker import BrokerConfig


async def ask(folder: Path, line: bytes) -> list[dict[str, Any]]:
    with socket_path(str(folder)) as path:
        reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    answers = [json.loads(answer) for answer in (await reader.read()).splitlines()]
    writer.close()
    return answers


@pytest.mark.slow
def test_orders_over_the_socket(tmp_path: Path) -> None:
    async def test() -> None:
        server = Server(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await server.start()
        try:
            assert await ask(tmp_path, b'{"command": "compact", "explain": true}\n') == [{"end": True}]
            for nonsense in (b"nonsense\n", b"\n", b"[1]\n", b"\xff\n", b"x" * 200_000 + b"\n", b"[" * 50_000 + b"\n"):
                (answer,) = await ask(tmp_path, nonsense)
                assert set(answer) == {"error"}
            with socket_path(str(tmp_path)) as path:
                _, idle = await asyncio.open_unix_connection(path)  # and sends nothing
                _, late = await asyncio.open_unix_connection(path)
        finally:
            await server.stop()
        idle.close()
        late.close()
        await asyncio.sleep(0.01)
        assert not (tmp_path / SOCKET_NAME).exists()

    asyncio.run(asyncio.wait_for(test(), 20))


def test_only_processes_of_the_same_user_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert is_own_user(one)
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        assert is_own_user(one) == (os.getuid() == 0)


@pytest.mark.slow
def test_a_broker_without_a_socket_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(folder: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gregor.broker.admin_socket.server.listen", refuse)

    async def test() -> None:
        server = Server(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await server.start()
        await server.stop()

    asyncio.run(asyncio.wait_for(test(), 20))
    assert "cannot be opened, so that `gregor compact`" in caplog.text


@pytest.mark.slow
def test_a_socket_that_cannot_be_removed_keeps_no_broker_from_a_clean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The situation of a disk that is read-only since it failed."""

    async def test() -> None:
        server = Server(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await server.start()
        (tmp_path / SOCKET_NAME).unlink()
        (tmp_path / SOCKET_NAME).mkdir()
        await server.stop()

    asyncio.run(asyncio.wait_for(test(), 20))
    assert "cannot be removed" in caplog.text
    assert (tmp_path / ".kafka_cleanshutdown").exists()
