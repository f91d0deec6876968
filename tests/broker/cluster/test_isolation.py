"""A broker that ZooKeeper does not answer: when it continues to lead, and when not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gregor.broker.cluster import isolation
from gregor.broker.cluster.isolation import Isolation
from gregor.protocol.channel_security import ChannelSecurity
from gregor.protocol.errors import ErrorCode
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition.metadata_image import Endpoint, LiveBroker
from tests.broker.harness import Harness, running


class Others:
    """The live brokers in the metadata of each other broker; None: no answer."""

    def __init__(self, harness: Harness, words: dict[int, set[int] | None]) -> None:
        self.asked: list[int] = []
        self._words = words
        harness.broker.metadata.brokers |= {
            id_: LiveBroker(id_, {"PLAINTEXT": Endpoint("other", id_, 0)}, None) for id_ in words
        }

    async def live_brokers(self, host: str, port: int, _gate: Gate, _security: ChannelSecurity) -> set[int]:
        assert host == "other"
        self.asked.append(port)
        word = self._words[port]
        if word is None:
            raise PeerError("it is gone")
        return word


def watched_by(harness: Harness, silent_s: Callable[[], float]) -> Isolation:
    broker = harness.broker
    return Isolation(
        broker.replicas,
        broker.metadata,
        broker.gate,
        silent_s=silent_s,
        session_timeout_ms=6000,
        listener="PLAINTEXT",
    )


@pytest.mark.parametrize(
    ("words", "silent_s", "leads", "outdated", "asked"),
    [
        ({1: {1, 2}}, 7.0, False, True, [1]),  # cut off: others lead
        ({1: {0, 1, 2}}, 7.0, True, False, [1]),  # no broker has a ZooKeeper
        ({1: {0, 1, 2}}, 5.0, True, False, [1]),
        ({1: {1, 2}}, 5.0, True, True, [1]),  # its session lasts, by its own clock
        ({1: {1, 2}}, 0.0, True, False, []),  # ZooKeeper answers
        ({1: None, 2: {1, 2}}, 7.0, False, True, [1, 2]),
        ({1: None, 2: {0, 2}}, 7.0, True, False, [1, 2]),
        ({1: set(), 2: {0, 2}}, 7.0, True, False, [1, 2]),  # a broker that has just started knows none
        ({1: None}, 7.0, True, True, [1]),  # cut off from brokers, too
        ({1: None}, 5.0, True, True, [1]),
        ({}, 7.0, True, False, []),  # it was the only one already
    ],
)
def test_metadata_of_other_brokers_decides_whether_it_leads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[int, set[int] | None],
    silent_s: float,
    leads: bool,
    outdated: bool,
    asked: list[int],
) -> None:
    with running(tmp_path) as harness:
        harness.create_topic("t", partitions=2)
        others = Others(harness, words)
        monkeypatch.setattr(isolation, "live_brokers", others.live_brokers)
        broker = harness.broker
        watched = watched_by(harness, lambda: silent_s)
        harness.run(watched.check())
        harness.run(watched.check())
        refused = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [harness.produce("t", b"x", partition=index).error_code for index in (0, 1)] == [refused] * 2
        assert watched.is_fenced is not leads
        assert broker.replicas.may_be_outdated is outdated
        # A fenced broker that leads nothing sends no request.
        assert others.asked == asked * (2 if leads else 1)


def test_broker_that_zookeeper_answers_again_is_not_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first answer of another broker, it may be outdated already."""
    silent_s = 1.0
    during: list[bool] = []
    with running(tmp_path) as harness:
        broker = harness.broker
        others = Others(harness, {1: {0, 1}})

        async def live_brokers(host: str, port: int, gate: Gate, security: ChannelSecurity) -> set[int]:
            during.append(broker.replicas.may_be_outdated)
            return await others.live_brokers(host, port, gate, security)

        monkeypatch.setattr(isolation, "live_brokers", live_brokers)
        watched = watched_by(harness, lambda: silent_s)
        harness.run(watched.check())
        harness.run(watched.check())
        assert during == [True, False]
        monkeypatch.setattr(isolation, "live_brokers", Others(harness, {1: None}).live_brokers)
        harness.run(watched.check())
        assert broker.replicas.may_be_outdated
        silent_s = 0.0
        harness.run(watched.check())
        assert not broker.replicas.may_be_outdated
