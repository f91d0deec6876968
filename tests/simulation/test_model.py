"""The simulation's own parts: the loop's processes and time, and gregor's ZooKeeper client on the modelled ensemble."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gregor.replication.store.metadata_store import BadVersion, NodeExists, WatchEvent
from tests.simulation.disks import Disk
from tests.simulation.ledger import is_there
from tests.simulation.loop import Process, Stuck, VirtualLoop
from tests.simulation.virtual_time import virtual
from tests.simulation.zookeeper import Ensemble, SimulatedStore


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()  # type: ignore[abstract]
    with virtual(loop, random.Random(1)):
        yield loop
    loop.dispose()


def store(loop: VirtualLoop, process: Process, ensemble: Ensemble) -> SimulatedStore:
    return SimulatedStore(ensemble, process, 2000)


async def ticks(seen: list[float], loop: VirtualLoop) -> None:
    while True:
        await asyncio.sleep(1)
        seen.append(loop.time())


def test_the_killed_do_nothing_and_the_frozen_do_it_late(loop: VirtualLoop) -> None:
    killed, frozen = Process("killed"), Process("frozen")
    seen: dict[Process, list[float]] = {killed: [], frozen: []}
    for process in (killed, frozen):
        loop.spawn(process, ticks(seen[process], loop), process.name)
    loop.run_for(2.5)
    loop.kill(killed)
    loop.freeze(frozen)
    loop.run_for(5)
    assert seen == {killed: [1, 2], frozen: [1, 2]}
    loop.thaw(frozen)
    loop.run_for(2)
    assert seen == {killed: [1, 2], frozen: [1, 2, 7.5, 8.5, 9.5]}


def test_a_loop_without_end_is_noticed(loop: VirtualLoop) -> None:
    def forever() -> None:
        loop.call_soon(forever)

    loop.call_soon(forever)
    with pytest.raises(Stuck):
        loop.run_for(1)


def test_a_disk_keeps_what_was_synced_and_some_of_the_rest() -> None:
    kept = set()
    for seed in range(20):
        disk = Disk()
        disk.make_directory("/data")
        file = disk.create("/data/log")
        file.write(b"abc")
        file.sync()
        disk.sync_directory("/data")
        file.write(b"def")
        disk.lose_some(random.Random(seed))
        kept.add(disk.read_bytes("/data/log"))
    assert kept == {b"abc", b"abcd", b"abcde", b"abcdef"}


def test_a_session_survives_a_lost_connection_and_not_a_long_silence(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    open_link = [True]
    ensemble = Ensemble(loop, random.Random(2), lambda process: open_link[0])
    process = Process("b1")
    client = store(loop, process, ensemble)
    events: list[WatchEvent] = []
    expired: list[float] = []
    client.on_session_expired.append(lambda: expired.append(loop.time()))

    async def begin() -> None:
        await client.start()
        await client.create("/mine", ephemeral=True)
        await client.exists("/mine", events.append)

    loop.spawn(process, begin(), "begin")
    loop.run_for(1)
    first = client.session_id
    caplog.clear()
    with caplog.at_level(logging.INFO, "gregor.replication.store.zookeeper"):
        client.client.break_connection()
        loop.run_for(60)
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "The connection to ZooKeeper is lost; the broker connects again",
        "Connected to ZooKeeper again",
    ]
    # The watch is called, so that its owner reads the nodes again.
    assert client.session_id == first and len(events) == 1 and not expired
    assert ensemble.tree.exists("/mine", None) is not None
    open_link[0] = False
    loop.run_for(5)
    assert ensemble.tree.exists("/mine", None) is None
    open_link[0] = True
    loop.run_for(2)
    assert client.session_id != first and len(expired) == 1


@pytest.mark.parametrize("seed", range(10))
def test_writes_over_breaking_connections_are_done_once(loop: VirtualLoop, seed: int) -> None:
    """Let two clients count with conditional writes: no number is counted twice.

    A number may be counted by neither: a client whose response was lost cannot know whether its write succeeded once
    the other client has overwritten it.
    """
    rng = random.Random(seed)
    ensemble = Ensemble(loop, rng, lambda process: True)
    counted = []

    async def count(client: SimulatedStore, name: int) -> None:
        await client.start()
        with suppress(NodeExists):
            await client.create("/count", b"0-")
        done = 0
        while done < 30:
            found = await client.get("/count")
            assert found is not None
            number = int(found[0].partition(b"-")[0]) + 1
            try:
                await client.set("/count", b"%d-%d" % (number, name), found[1].version)
            except BadVersion:
                continue
            done += 1
            counted.append(number)

    clients = []
    for name in range(2):
        process = Process(f"p{name}")
        clients.append(store(loop, process, ensemble))
        loop.spawn(process, count(clients[-1], name), "count")
    for _ in range(400):
        loop.run_for(0.05)
        if rng.random() < 0.3:
            rng.choice(clients).client.break_connection()
    loop.run_for(30)
    assert not loop.problems
    assert len(counted) == len(set(counted)) == 60
    assert max(counted) <= 70


def test_many_nodes_are_read_by_one_request(loop: VirtualLoop) -> None:
    """Whether the servers know it is tried once, in a session of its own."""
    process = Process("reader")
    ensemble = Ensemble(loop, random.Random(1), lambda _: True)
    reader = store(loop, process, ensemble)
    paths = [f"/n{number}" for number in range(30)]
    found: list[list[tuple[bytes, object] | None]] = []

    async def read() -> None:
        await reader.start()
        for path in paths[:-1]:
            await reader.create(path, path.encode())
        for _ in range(2):
            found.append(list(await reader.get_many(paths)))

    loop.spawn(process, read(), "read")
    loop.run_for(10)
    assert [[one and one[0] for one in some] for some in found] == [[*(path.encode() for path in paths[:-1]), None]] * 2
    assert len(ensemble.sessions) == 1


def test_a_compacted_record_is_there_while_a_later_one_of_its_key_is() -> None:
    records = {3: b"i0.4|k1", 7: b"i1.2|k2", 9: b"p2.1"}
    assert is_there(records, 3, b"i0.4|k1")
    assert is_there(records, 2, b"i0.1|k2")
    assert not is_there(records, 8, b"i0.9|k2")
    assert not is_there(records, 3, b"i0.5|k1")
    assert is_there(records, 9, b"p2.1")
    assert not is_there(records, 2, b"p2.0")
