"""Listeners that come, go and move while the broker runs, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import MetadataRequest
from gregor.replication.admin.configs import replacement
from tests.broker.test_server import Client, World, run
from tests.support.processes import free_port

__all__ = ["run"]  # a fixture

MAP = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"


async def set_listeners(world: World, *texts: str) -> None:
    configs = {"listeners": ",".join(texts), "listener.security.protocol.map": MAP}
    await world.server.broker.admin.settings.alter("brokers", "0", replacement(configs if texts else {}))


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


async def told_port(client: Client, wanted: int) -> None:
    """Metadata names that port before long."""
    for _ in range(200):
        answer = await client.ask(MetadataRequest(topics=[]), 9)
        if [broker.port for broker in answer.brokers] == [wanted]:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(answer)


def test_come_and_go(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with World(tmp_path) as world:
            (first,) = world.config.listeners
            port = world.server.listeners.ports["PLAINTEXT"]
            other = free_port()
            await set_listeners(world, first.text, f"OTHER://127.0.0.1:{other}")
            before, client = await connect(port), await connect(other)
            await told_port(client, other)
            await told_port(before, port)
            await set_listeners(world)
            # The one that stays keeps its connections; the other one's get their last answers, then they end.
            assert await asyncio.wait_for(client.reader.read(), 30) == b""
            await told_port(before, port)
            with pytest.raises(OSError):
                await connect(other)
            for one in (before, client):
                one.writer.close()

    run(test())


def test_a_listener_moves(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with World(tmp_path) as world:
            old, new = world.server.listeners.ports["PLAINTEXT"], free_port()
            before = await connect(old)
            await set_listeners(world, f"PLAINTEXT://127.0.0.1:{new}")
            after = await connect(new)
            await told_port(after, new)
            await told_port(before, new)
            with pytest.raises(OSError):
                await connect(old)
            # To all addresses, on the same port: the old one has to make room first.
            await set_listeners(world, f"PLAINTEXT://0.0.0.0:{new}")
            assert ("PLAINTEXT", "0.0.0.0", new) in world.server.listeners.bound
            for one in (before, after):
                one.writer.close()

    run(test())


def test_an_address_in_use_is_refused(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with World(tmp_path / "a") as taken, World(tmp_path / "b") as world:
            port = taken.server.listeners.ports["PLAINTEXT"]
            before = world.server.listeners.ports
            with pytest.raises(KafkaError) as error:
                await set_listeners(world, f"PLAINTEXT://127.0.0.1:{port}")
            assert error.value.code is ErrorCode.INVALID_REQUEST
            assert "cannot be bound" in str(error.value)
            assert world.server.listeners.ports == before

    run(test())


def test_they_are_open_after_a_restart(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        port = free_port()
        async with World(tmp_path) as world:
            await set_listeners(world, f"PLAINTEXT://127.0.0.1:{port}")
        async with World(tmp_path) as world:
            client = await connect(port)
            await told_port(client, port)
            client.writer.close()

    run(test())


def test_the_file_names_an_address_in_use(run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with World(tmp_path / "a") as taken, World(tmp_path / "b") as world:
            port, busy = world.server.listeners.ports["PLAINTEXT"], taken.server.listeners.ports["PLAINTEXT"]
            config, file = world.config, tmp_path / "server.properties"
            config.path = str(file)
            file.write_text(f"log.dirs={tmp_path}/b\nlisteners=PLAINTEXT://127.0.0.1:{busy}\nmessage.max.bytes=5000\n")
            await world.server.reload()
            assert "is ignored: PLAINTEXT" in caplog.text and "cannot be bound" in caplog.text
            assert (world.server.listeners.ports, config["message.max.bytes"]) == ({"PLAINTEXT": port}, 5000)
            file.write_text(f"log.dirs={tmp_path}/b\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\n")
            await world.server.reload()
            moved = world.server.listeners.ports["PLAINTEXT"]
            assert moved not in (port, busy)
            client = await connect(moved)
            await told_port(client, moved)
            client.writer.close()

    run(test())


def test_a_stored_address_in_use_is_left_aside_until_it_is_free(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker starts all the same, as the stored address can be altered over a connection only."""

    async def test() -> None:
        busy = free_port()
        async with World(tmp_path) as world:
            await set_listeners(world, f"PLAINTEXT://127.0.0.1:{busy}")
        with socket.create_server(("127.0.0.1", busy)):
            async with World(tmp_path) as world:
                port = world.server.listeners.ports["PLAINTEXT"]
                assert port != busy
                assert "--delete-config listeners" in caplog.text
                client = await connect(port)
                await told_port(client, port)
                # Another change makes it try again, in vain; the addresses that clients get still work.
                caplog.clear()
                settings = world.server.broker.admin.settings
                await settings.alter("brokers", "", replacement({"log.segment.bytes": "2000000"}))
                assert "--delete-config listeners" in caplog.text
                await told_port(client, port)
                client.writer.close()
        async with World(tmp_path) as world:
            assert world.server.listeners.ports == {"PLAINTEXT": busy}

    run(test())


def test_stored_addresses_that_the_other_settings_need_stay(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def contradict(*_: object) -> NoReturn:
        raise ConfigError("inter.broker.listener.name", "OTHER", "must be one of the listeners")

    async def test() -> None:
        busy = free_port()
        async with World(tmp_path) as world:
            await set_listeners(world, f"PLAINTEXT://127.0.0.1:{busy}")
        monkeypatch.setattr(BrokerConfig, "drop_dynamic", contradict)
        with socket.create_server(("127.0.0.1", busy)), pytest.raises(OSError, match="cannot be bound"):
            await World(tmp_path).server.start()
        (line,) = (text for text in caplog.messages if "inter.broker.listener.name=OTHER" in text)
        assert line.startswith("the dynamic ones of the settings listeners, ") and "Free the addresses" in line

    run(test())


def test_stored_address_is_bound_once_it_is_free(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.broker.net.open_listeners._TRY_AGAIN_S", 0.05)

    async def test() -> None:
        busy = free_port()
        async with World(tmp_path) as world:
            await set_listeners(world, world.config.listeners[0].text, f"OTHER://127.0.0.1:{busy}")
        with socket.create_server(("127.0.0.1", busy)) as squatter:
            async with World(tmp_path) as world:
                listeners = world.server.listeners
                assert set(listeners.ports) == {"PLAINTEXT"}
                squatter.close()
                for _ in range(3000):
                    if "OTHER" in listeners.ports:
                        break
                    await asyncio.sleep(0.01)
                client = await connect(busy)
                await told_port(client, busy)
                client.writer.close()

    run(test())


def test_an_address_of_the_file_that_is_not_wanted_any_more_may_be_anothers(run: Any, tmp_path: Path) -> None:
    async def test() -> None:
        before, port = free_port(), free_port()
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{before}"}
        async with World(tmp_path, **settings) as world:
            await set_listeners(world, f"PLAINTEXT://127.0.0.1:{port}")
        with socket.create_server(("127.0.0.1", before)):
            async with World(tmp_path, **settings) as world:
                assert world.server.listeners.ports == {"PLAINTEXT": port}
                client = await connect(port)
                await told_port(client, port)
                client.writer.close()
            with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="cannot be bound"):
                await World(tmp_path, **settings).server.start()

    run(test())
