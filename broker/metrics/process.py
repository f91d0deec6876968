"""The process: its event loop, its connections, and what the operating system counts for it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.broker.jobs.loop_lag import BOUNDS_MS, LagMeter
from gregor.broker.metrics.family import COUNTER, GAUGE, UNTYPED, Family, label_text
from gregor.protocol.turns import Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.broker.metrics.partitions import Figures
    from gregor.broker.net.connections import Connections

_IDLE_NETWORK = "kafka_network_socketserver_networkprocessoravgidle_percent"
_IDLE_HANDLERS = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
_CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
_PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
_DISK_READ = "kafka_server_kafkaserver_linux_disk_read_bytes"
_DISK_WRITE = "kafka_server_kafkaserver_linux_disk_write_bytes"
_IDLE = "Share of the last seconds, from 0 to 1, in which the event loop had no work"

FAMILIES = (
    Family(_IDLE_NETWORK, GAUGE, (), f"{_IDLE}; one loop serves the network and the requests."),
    Family(_IDLE_HANDLERS, GAUGE, (), f"{_IDLE}; the same figure as that of the network."),
    Family(_CONNECTIONS, UNTYPED, ("listener",), "Open connections of a listener."),
    Family(
        _PURGATORY,
        GAUGE,
        ("delayedoperation",),
        "Waits of delayed operations: of Produce for replicas in sync, of Fetch for records, one for each partition.",
    ),
    Family(_DISK_READ, GAUGE, (), "Bytes that the process made the disks read, since its start."),
    Family(_DISK_WRITE, GAUGE, (), "Bytes that the process made the disks write, since its start."),
    Family("process_cpu_seconds_total", COUNTER, (), "Processor time of the process, user and system."),
    Family("process_resident_memory_bytes", GAUGE, (), "Resident memory of the process."),
    Family("process_virtual_memory_bytes", GAUGE, (), "Virtual memory of the process."),
    Family("process_open_fds", GAUGE, (), "Open file descriptors."),
    Family("process_max_fds", GAUGE, (), "Limit of the open file descriptors."),
    Family("process_start_time_seconds", GAUGE, (), "Start of the process, in seconds since 1970."),
    Family(
        "gregor_event_loop_lags_total",
        COUNTER,
        ("at_least_ms",),
        "Times that the event loop kept its callers waiting for at least so many milliseconds.",
    ),
    Family("gregor_event_loop_lag_max_seconds", GAUGE, (), "The longest wait for the event loop in the last minute."),
)

_DESCRIPTORS = "/proc/self/fd"
_WINDOW_S = 5.0
_SAMPLES = 16


class LoopIdle:
    """The share of time in which the thread of the event loop used no processor, over the last scrapes."""

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        busy_clock_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`busy_clock_s`: the processor time of the thread that the loop runs in, which calls `share`."""
        self._clock_s = clock_s
        self._busy_clock_s = busy_clock_s
        self._samples = deque([(clock_s(), busy_clock_s())], _SAMPLES)

    def share(self) -> float:
        """Return the share since the latest call that was at least 5 s ago, or since the first."""
        now_s, busy_s = self._clock_s(), self._busy_clock_s()
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - _WINDOW_S:
            self._samples.popleft()
        since_s, since_busy_s = self._samples[0]
        if now_s > self._samples[-1][0]:
            self._samples.append((now_s, busy_s))
        elapsed_s = now_s - since_s
        return 1.0 if elapsed_s <= 0 else min(1.0, max(0.0, 1 - (busy_s - since_busy_s) / elapsed_s))


class ProcessView:
    """Reads the event loop, the connections, and the files of Linux about the process; where there are none (other
    systems) their families are left out."""

    def __init__(self, connections: Connections, lag: LagMeter) -> None:
        self._connections = connections
        self._lag = lag
        self._idle = LoopIdle()

    def collect(self, page: Page, figures: Figures) -> Steps[None]:
        """Add the families of this module."""
        idle = round(self._idle.share(), 4)
        page.add(_IDLE_NETWORK, idle)
        page.add(_IDLE_HANDLERS, idle)
        for listener, count in self._connections.by_listener.items():
            page.add(_CONNECTIONS, count, label_text(listener=listener))
        page.add(_PURGATORY, figures.delayed_produce, label_text(delayedoperation="Produce"))
        page.add(_PURGATORY, figures.delayed_fetch, label_text(delayedoperation="Fetch"))
        for bound_ms in BOUNDS_MS:
            labels = label_text(at_least_ms=bound_ms)
            page.add("gregor_event_loop_lags_total", self._lag.total.over(bound_ms), labels)
        page.add("gregor_event_loop_lag_max_seconds", round(self._lag.last_minute().longest_ms / 1000, 6))
        page.add("process_cpu_seconds_total", round(time.process_time(), 3))
        # An older Linux lists the descriptors of a process, which lasts milliseconds for many: on a thread.
        for name, value in (yield _of_the_system).items():
            page.add(name, value)


def _of_the_system() -> dict[str, float]:
    """Return what /proc has of this process."""
    try:
        io = dict(line.split(": ") for line in _read("/proc/self/io").splitlines())
        # Behind the name of the command, which may contain anything.
        fields = _read("/proc/self/stat").rpartition(")")[2].split()
        limits = next(line for line in _read("/proc/self/limits").splitlines() if line.startswith("Max open files"))
        booted_s = next(line for line in _read("/proc/stat").splitlines() if line.startswith("btime")).split()[1]
        soft_limit = limits.split()[3]
        return {
            _DISK_READ: int(io["read_bytes"]),
            _DISK_WRITE: int(io["write_bytes"]),
            "process_resident_memory_bytes": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
            "process_virtual_memory_bytes": int(fields[20]),
            "process_start_time_seconds": int(booted_s) + int(fields[19]) / os.sysconf("SC_CLK_TCK"),
            # Linux 6.2 and later count the descriptors; a folder of an earlier one has the size 0.
            "process_open_fds": os.stat(_DESCRIPTORS).st_size or len(os.listdir(_DESCRIPTORS)),
            "process_max_fds": float("inf") if soft_limit == "unlimited" else int(soft_limit),
        }
    except (OSError, LookupError, ValueError, StopIteration):
        return {}


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
