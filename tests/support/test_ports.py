"""Ports of tests: two processes never choose the same one."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

from tests.support.ports import FIRST_PORT, SLICE_PORTS, USUAL_EPHEMERAL, Ports, end_of_ports

END = FIRST_PORT + 2 * SLICE_PORTS


def test_each_process_has_slices_of_its_own_and_each_port_comes_once(tmp_path: Path) -> None:
    with closing(Ports(tmp_path, END)) as one, closing(Ports(tmp_path, END)) as other:
        mine = [one.next() for _ in range(20)]
        theirs = [other.next() for _ in range(20)]
    assert len({*mine, *theirs}) == 40
    assert {(port - FIRST_PORT) // SLICE_PORTS for port in mine} == {0}
    assert {(port - FIRST_PORT) // SLICE_PORTS for port in theirs} == {1}


def test_port_that_is_in_use_is_passed_over_and_ports_are_used_again_at_the_end(tmp_path: Path) -> None:
    with closing(Ports(tmp_path, FIRST_PORT + SLICE_PORTS)) as ports, socket.socket() as taken:
        first = ports.next()
        taken.bind(("127.0.0.1", first))
        found = {ports.next() for _ in range(2 * SLICE_PORTS)}
    assert first not in found
    assert all(FIRST_PORT <= port < FIRST_PORT + SLICE_PORTS for port in found)


def test_preferred_port_is_given_once(tmp_path: Path) -> None:
    with closing(Ports(tmp_path, END)) as one, closing(Ports(tmp_path, END)) as other, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        in_use = taken.getsockname()[1]
        _, wanted = one.next(), one.next()  # not the first one of a slice, whose lock has that name
        assert one.prefer(wanted) == wanted
        assert other.prefer(wanted) >= FIRST_PORT + SLICE_PORTS
        assert one.prefer(wanted) not in (wanted, in_use)
        assert one.prefer(in_use) != in_use


def test_ports_end_where_those_of_outgoing_connections_begin(tmp_path: Path) -> None:
    path = tmp_path / "range"
    assert end_of_ports(path) == USUAL_EPHEMERAL
    path.write_text("15000\t60999\n")
    assert end_of_ports(path) == 15_000
    path.write_text("1024 65535\n")
    assert end_of_ports(path) == USUAL_EPHEMERAL
