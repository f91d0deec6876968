"""Hosts as network namespaces on one bridge, whose links are cut and restored one by one.

Everything hangs on the namespaces that `inside()` opens around a whole run: network, mounts, processes. When the
run ends, in whatever way, the kernel removes the bridge, the hosts, the mounts and every process with it.

A cut link loses packets without an error, as a pulled cable does: at both ends the neighbour's entry names a hardware
address that no host has. No firewall is needed for that. Connections are reset by the kernel, when `ss` requests it.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence

NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
CLIENTS = "clients"
"""The host that the run itself is on; it holds the bridge."""
ORPHAN_RETRIES = pathlib.Path("/proc/sys/net/ipv4/tcp_orphan_retries")
_PREFIX = "10.77.0."
_NOWHERE = "02:00:00:00:de:ad"


def missing() -> str | None:
    """Why namespaces cannot be made here, or None."""
    for tool in ("unshare", "nsenter", "ip", "ss"):
        if shutil.which(tool) is None:
            return f"{tool} is missing: apt-get install util-linux iproute2"
    trial = "ip link add trial type bridge && ip link add port type veth peer name wire && mount -t tmpfs none /mnt"
    done = subprocess.run(["unshare", *_rights(), *NAMESPACES, "sh", "-c", trial], capture_output=True, text=True)
    return f"no namespaces here: {done.stderr.strip()}" if done.returncode else None


def _rights() -> list[str]:
    return [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def inside(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in namespaces of its own."""
    return ["unshare", *_rights(), *NAMESPACES, *command]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def can_reset() -> bool:
    """Whether this kernel can reset a connection of others (CONFIG_INET_DIAG_DESTROY)."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        port = server.getsockname()[1]
        done = subprocess.run(["ss", "--kill", "--tcp", "--no-header", "dport", f"{port}"], capture_output=True)
        return bool(done.stdout.strip())


def _drop_what_was_given_up() -> None:
    """Let the kernel of the clients' host end closed connections whose bytes have not arrived.

    By default it sends them for minutes. A commit that a client has given up during a cut, and repeated, would arrive
    behind the commits that followed on another connection, and no broker can know that it is the older one.
    """
    ORPHAN_RETRIES.write_text("1")


class Network:
    """The hosts of one run; to be made by a process that runs `inside` and once only."""

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {CLIENTS: 1} | {name: 11 + index for index, name in enumerate(names)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self.cuts: set[frozenset[str]] = set()
        _drop_what_was_given_up()
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge", "address", self._hardware(CLIENTS), "type", "bridge")
        _run("ip", "link", "set", "bridge", "up")
        _run("ip", "addr", "add", f"{self.address(CLIENTS)}/24", "dev", "bridge")
        for name in names:
            self._add(name)
        for name in self._numbers:
            for other in self._numbers:
                if name != other:
                    self._point(name, other, self._hardware(other))

    def _add(self, name: str) -> None:
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None
        holder.stdout.read(1)  # it is in its namespace now
        self._holders[name] = holder
        port = f"to-{name}"
        hardware = self._hardware(name)
        _run(
            *("ip", "link", "add", port, "type", "veth"),
            *("peer", "name", "wire", "address", hardware, "netns", f"{holder.pid}"),
        )
        _run("ip", "link", "set", port, "master", "bridge", "up")
        _run(*self.on(name, "ip", "link", "set", "lo", "up"))
        _run(*self.on(name, "ip", "addr", "add", f"{self.address(name)}/24", "dev", "wire"))
        _run(*self.on(name, "ip", "link", "set", "wire", "up"))

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:00:{self._numbers[name]:02x}"

    def address(self, name: str) -> str:
        return f"{_PREFIX}{self._numbers[name]}"

    def on(self, name: str, *command: str) -> list[str]:
        """The command line that runs `command` on that host."""
        if name == CLIENTS:
            return list(command)
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net", *command]

    def _point(self, name: str, other: str, hardware: str) -> None:
        device = "bridge" if name == CLIENTS else "wire"
        entry = ("ip", "neigh", "replace", self.address(other), "lladdr", hardware, "dev", device, "nud", "permanent")
        _run(*self.on(name, *entry))

    def cut(self, one: str, other: str) -> None:
        """No packet passes between the two any more, in either direction."""
        self._point(one, other, _NOWHERE)
        self._point(other, one, _NOWHERE)
        self.cuts.add(frozenset((one, other)))

    def mend(self, one: str, other: str) -> None:
        self._point(one, other, self._hardware(other))
        self._point(other, one, self._hardware(one))
        self.cuts.discard(frozenset((one, other)))

    def mend_all(self) -> None:
        for pair in list(self.cuts):
            one, other = pair
            self.mend(one, other)

    def reset(self, one: str, other: str) -> int:
        """Reset all TCP connections between the two: `one` receives RST, and `other` has lost its sockets. Return how
        many; 0 as well where the kernel was built without CONFIG_INET_DIAG_DESTROY."""
        destroy = self.on(other, "ss", "--kill", "--tcp", "--no-header", "state", "connected", "dst", self.address(one))
        return len(_run(*destroy).splitlines())

    def others(self, name: str) -> list[str]:
        return [other for other in self._numbers if other != name]


if __name__ == "__main__":
    sys.exit(missing())
