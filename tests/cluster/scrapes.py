"""The metrics and the readiness of each broker of a run, read every second on threads of their own."""

from __future__ import annotations

import base64
import http.client
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.cluster.cluster import ask_metadata
from tests.cluster.security import STRANGER
from tests.cluster.servers import METRICS_PORT, METRICS_USER, Broker

EVERY_S = 1.0
ANSWER_S = 3.0
AUTHORIZATION = {"Authorization": f"Basic {base64.b64encode(METRICS_USER.encode()).decode()}"}

Counters = dict[str, float]


class Scrape(NamedTuple):
    """The answers of one life of a broker in one second. A broker that is cut off, paused or dead
    answers nothing: there is no scrape of that second."""

    begun_ms: int
    ended_ms: int
    is_ready: bool
    counters: Counters
    """Series of the type counter; none while the broker shows no metrics."""
    leads: float
    """The number of partitions that it leads."""
    serves: bool
    """Whether it answered a Metadata request after that."""
    is_registered: bool
    """Whether it was unready, and registered in ZooKeeper after that: of a ready broker, ZooKeeper is not queried."""


class Life(NamedTuple):
    """One process of a broker. `ended_ms` is None of those that have not ended yet."""

    broker: str
    start: int
    pid: int
    begun_ms: int
    ended_ms: int | None
    scrapes: Sequence[Scrape]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def counters_of(page: str) -> tuple[Counters, float]:
    """Return the counters of a page in Prometheus's text format, and the number of partitions that the broker leads."""
    kinds: set[str] = set()
    found: Counters = {}
    leads = 0.0
    for line in page.splitlines():
        words = line.split()
        if line.startswith("# TYPE") and words[3] == "counter":
            kinds.add(words[2])
        elif line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] in kinds:
                found[series] = float(value)
            elif series == "kafka_server_replicamanager_leadercount":
                leads = float(value)
    return found, leads


def metrics_of(broker: Broker) -> Counters:
    """Return the counters of a broker that serves."""
    status, page = _get(broker, "/metrics")
    assert status == http.HTTPStatus.OK, page
    return counters_of(page)[0]


def _get(broker: Broker, path: str) -> tuple[int, str]:
    host = broker.address.rpartition(":")[0]
    connection = http.client.HTTPConnection(host, METRICS_PORT, timeout=ANSWER_S)
    try:
        connection.request("GET", path, headers=AUTHORIZATION)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Scraper:
    """Reads one broker until `close`. Lives without any answer count, too."""

    def __init__(self, broker: Broker, is_registered: Callable[[], bool]) -> None:
        self._broker = broker
        self._is_registered = is_registered
        self._scrapes: dict[int, list[Scrape]] = {}
        self.shown: list[str] = []
        """The topics that the broker has shown to a user without rules."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> list[Life]:
        """Read once more, and return all lives so far."""
        self._closing.set()
        self._thread.join()
        self._scrape()
        return [Life(self._broker.name, *life, self._scrapes.get(life.start, [])) for life in self._broker.lives()]

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            self._scrape()

    def _scrape(self) -> None:
        start, begun_ms = self._broker.starts, now_ms()
        try:
            is_ready = _get(self._broker, "/health/ready")[0] == http.HTTPStatus.OK
            status, page = _get(self._broker, "/metrics")
        except (OSError, http.client.HTTPException):
            return
        counters, leads = counters_of(page) if status == http.HTTPStatus.OK else ({}, 0.0)
        ended_ms = now_ms()
        try:
            ask_metadata(self._broker)
            serves = True
            if self._broker.security.is_on:
                self.shown += [topic.name or "" for topic in ask_metadata(self._broker, STRANGER).topics]
        except OSError:
            serves = False
        is_registered = not is_ready and self._is_registered()
        if self._broker.starts == start:
            scrape = Scrape(begun_ms, ended_ms, is_ready, counters, leads, serves, is_registered)
            self._scrapes.setdefault(start, []).append(scrape)
