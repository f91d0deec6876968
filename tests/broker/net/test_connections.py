"""gregor.broker.net.connections: how many may be open, from where, and which go for being quiet."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.net.connections import CLOSED_AT_ONCE, Connections, parse_overrides
from gregor.config.broker import BrokerConfig
from gregor.protocol.messages import ApiVersionsRequest, IncrementalAlterConfigsRequest
from tests.broker.harness import Harness, Wire, fetch_request, request_frame, running


class Counted:
    """The part of a connection that is counted and swept."""

    def __init__(self, host: str = "10.0.0.1", listener: str = "PLAINTEXT") -> None:
        self.host = host
        self.listener = listener
        self.quiet_sweeps = 0
        self.failures: list[str] = []
        self.sweeps: list[tuple[int, int]] = []

    def sweep(self, idle: int, stalled: int) -> None:
        self.sweeps.append((idle, stalled))

    def close(self) -> None:
        self.sweeps.append((-1, -1))

    def fail(self, reason: str) -> None:
        self.failures.append(reason)


def connections(**settings: str) -> Any:
    return Connections(BrokerConfig({key.replace("_", "."): value for key, value in settings.items()}))


def test_no_limits_unless_set() -> None:
    counted = connections()
    assert [counted.add(Counted()) for _ in range(500)] == [None] * 500
    assert len(counted) == 500


def test_of_thousands_that_leave_at_once_some_are_closed_in_each_turn() -> None:
    counted = connections()
    finished: list[int] = []

    class Leaving:
        def __init__(self, number: int) -> None:
            self.number = number

        def finish(self) -> None:
            finished.append(self.number)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in range(3 * CLOSED_AT_ONCE + 1):
            counted.left(Leaving(number), loop)
        assert not finished
        for turn in range(1, 4):
            await asyncio.sleep(0)
            assert len(finished) == turn * CLOSED_AT_ONCE
        await asyncio.sleep(0)
        assert finished == list(range(3 * CLOSED_AT_ONCE + 1))
        counted.left(Leaving(-1), loop)
        await asyncio.sleep(0)
        assert finished[-1] == -1

    asyncio.run(run())


def test_all_and_by_address() -> None:
    counted = connections(max_connections="5", max_connections_per_ip="2")
    many = [Counted("10.0.0.1") for _ in range(3)]
    assert [counted.add(one) is None for one in many] == [True, True, False]
    counted.discard(many[2])
    others = [Counted(f"10.0.0.{number}") for number in range(2, 6)]
    assert [counted.add(one) is None for one in others] == [True, True, True, False]
    # A slot that gets free can be used again, and a second removal of the same connection frees no other.
    for one in (others[3], others[0], others[0]):
        counted.discard(one)
    assert len(counted) == 4
    assert counted.add(Counted("10.0.0.9")) is None
    assert "max.connections=5" in counted.add(Counted("10.0.0.9"))


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    counted: Any = Connections(
        BrokerConfig(
            {
                "listeners": "PLAINTEXT://localhost:1,OTHER://localhost:2",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
                "listener.name.other.max.connections": "1",
                "listener.name.other.max.connection.creation.rate": "1",
            }
        )
    )
    first: Any = Counted(listener="OTHER")
    assert counted.add(first) is None
    assert "of the listener OTHER" in (counted.add(Counted(listener="OTHER")) or "")
    assert counted.add(Counted()) is None
    assert [counted.delay_s("OTHER", 100.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    assert [counted.delay_s("PLAINTEXT", 100.0) for _ in range(3)] == [0.0] * 3
    counted.close_listener("OTHER")
    assert first.sweeps == [(-1, -1)]


def with_a_listener_of_brokers(**settings: str) -> Any:
    return connections(
        listeners="PLAINTEXT://localhost:1,BROKERS://localhost:2",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
        **settings,
    )


def test_clients_do_not_use_up_the_connections_of_the_brokers() -> None:
    counted = with_a_listener_of_brokers(max_connections="3", listener_name_brokers_max_connections="2")
    clients = [Counted() for _ in range(3)]
    clients[1].quiet_sweeps = 7
    assert [counted.add(one) for one in clients] == [None] * 3
    refused = Counted()
    assert "max.connections=3 are open" in counted.add(refused)
    counted.discard(refused)
    assert counted.add(Counted(listener="BROKERS")) is None
    (reason,) = clients[1].failures
    assert "a broker has connected to the listener BROKERS" in reason
    assert [one.failures for one in (clients[0], clients[2])] == [[], []]
    counted.discard(clients[1])
    assert counted.add(Counted(listener="BROKERS")) is None
    assert "of the listener BROKERS" in counted.add(Counted(listener="BROKERS"))


def test_connections_of_brokers_alone_close_none_of_their_own() -> None:
    counted = with_a_listener_of_brokers(max_connections="1")
    brokers = [Counted(listener="BROKERS") for _ in range(3)]
    assert [counted.add(one) for one in brokers] == [None] * 3
    assert [one.failures for one in brokers] == [[]] * 3


def test_clients_do_not_delay_the_connections_of_the_brokers() -> None:
    counted = with_a_listener_of_brokers(
        max_connection_creation_rate="5", listener_name_brokers_max_connection_creation_rate="1"
    )
    assert [counted.delay_s("PLAINTEXT", 100.0) for _ in range(100)][-1] is None
    assert [counted.delay_s("BROKERS", 100.0) for _ in range(2)] == [0.0, 1.0]
    assert with_a_listener_of_brokers(max_connection_creation_rate="5").delay_s("BROKERS", 100.0) == 0.0


def test_the_only_listener_has_the_limits_of_the_broker() -> None:
    counted = connections(max_connections="1", max_connection_creation_rate="1")
    assert counted.add(Counted()) is None
    assert "max.connections=1" in counted.add(Counted())
    assert [counted.delay_s("PLAINTEXT", 100.0) for _ in range(2)] == [0.0, 1.0]


def test_clients_that_come_again_and_again_do_not_make_each_other_wait_for_ever() -> None:
    """1000 clients, each of which gives up after 15 s; some are let in all the time."""
    counted = connections(max_connection_creation_rate="10")
    let_in = refused = 0
    for second in range(0, 150, 15):
        for _ in range(1000):
            delay = counted.delay_s("PLAINTEXT", 1000.0 + second)
            if delay is None:
                refused += 1
            else:
                let_in += 1
                assert delay <= 10.0
    assert let_in >= 10 * 100
    assert refused


def test_the_limit_of_a_listener_takes_no_turn_of_the_others() -> None:
    counted: Any = Connections(
        BrokerConfig(
            {"max.connection.creation.rate": "100", "listener.name.plaintext.max.connection.creation.rate": "1"}
        )
    )
    assert [counted.delay_s("PLAINTEXT", 100.0) is None for _ in range(500)].count(False) == 11
    assert counted.delay_s("OTHER", 100.0) == 0.0


def test_overrides_for_single_addresses() -> None:
    counted = connections(
        max_connections_per_ip="1", max_connections_per_ip_overrides="10.0.0.7:3, [::1]:0, 127.0.0.1:2"
    )
    for host, allowed in (("10.0.0.7", 3), ("::1", 0), ("127.0.0.1", 2), ("10.0.0.8", 1)):
        assert [counted.add(Counted(host)) is None for _ in range(4)] == [number < allowed for number in range(4)], host


def test_names_among_overrides_are_looked_up_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        counted = connections(max_connections_per_ip_overrides="10.0.0.7:0,host.example:0")
        real = socket.getaddrinfo

        def getaddrinfo(host: str, *rest: Any, flags: int = 0, **options: Any) -> Any:
            if not flags & socket.AI_NUMERICHOST:
                assert threading.current_thread() is not threading.main_thread()
                host = {"host.example": "10.0.0.8"}.get(host, host)
            return real(host, *rest, flags=flags, **options)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        assert counted.add(Counted("10.0.0.7")) is not None
        for _ in range(1000):
            if counted.add(Counted("10.0.0.8")) is not None:
                break
            await asyncio.sleep(0.001)
        assert counted.add(Counted("10.0.0.8")) is not None
        assert counted.add(Counted("10.0.0.9")) is None

    asyncio.run(test())


def test_overrides_that_cannot_be_read_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_overrides("") == {}
    assert parse_overrides("10.0.0.7:3,nonsense,10.0.0.8:many,,10.0.0.9:4") == {"10.0.0.7": 3, "10.0.0.9": 4}
    assert "nonsense" in caplog.text and "many" in caplog.text


def test_a_limit_changed_while_the_broker_runs_counts_at_once(tmp_path: Path) -> None:
    def limit(harness: Harness, value: str) -> None:
        config = IncrementalAlterConfigsRequest.AlterableConfig(name="max.connections", config_operation=0, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, configs=[config])
        assert harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0

    with running(tmp_path) as harness:
        wires = [Wire(harness) for _ in range(3)]
        limit(harness, "3")
        assert Wire(harness).transport.aborted
        assert [wire.transport.aborted for wire in wires] == [False] * 3
        assert wires[0].ask(ApiVersionsRequest(), 0).error_code == 0
        limit(harness, "4")
        wires.append(Wire(harness))
        assert not wires[-1].transport.aborted


def test_nobody_comes_in_any_more_once_all_were_closed() -> None:
    counted = connections()
    one = Counted()
    counted.add(one)
    counted.close_all()
    assert one.sweeps == [(-1, -1)]
    assert "stopping" in counted.add(Counted())


@pytest.mark.parametrize(
    ("idle_ms", "sweeps", "interval_s"),
    [("600000", 120, 5.0), ("1000", 10, 0.1), ("10", 10, 0.001), ("0", 0, 5.0), ("-1", 0, 5.0)],
)
def test_how_often_is_looked(idle_ms: str, sweeps: int, interval_s: float) -> None:
    counted = connections(connections_max_idle_ms=idle_ms)
    one = Counted()
    counted.add(one)
    delays: list[float] = []

    class Loop:
        def call_later(self, delay: float, sweep: Any, loop: Any) -> Any:
            delays.append(delay)
            if len(delays) == 1:
                sweep(loop)

    counted.start_sweeping(Loop())  # type: ignore[arg-type]
    ((idle, stalled),) = one.sweeps
    assert (idle, stalled) == (sweeps, max(1, int(10 / interval_s)))
    assert delays == [pytest.approx(interval_s)] * 2


def test_quiet_connections_go_and_waiting_ones_stay(tmp_path: Path) -> None:
    with running(tmp_path, connections_max_idle_ms="50") as harness:
        harness.create_topic("t")
        connections = harness.broker.connections
        quiet, waiting = Wire(harness), Wire(harness)
        waiting.send(request_frame(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12))
        connections.start_sweeping(harness.loop)
        harness.until(lambda: quiet.transport.aborted)
        assert not waiting.transport.aborted
        assert len(connections) == 1
    assert waiting.transport.aborted  # by the stop
