"""broker.security.strangers: which peer ends beyond the limit, beside a slow and obvious twin."""

from __future__ import annotations

import random
import weakref
from collections import Counter

import pytest

from gregor.broker.security import strangers
from gregor.broker.security.strangers import Strangers


class Host(str):
    """A weak reference to it shows whether it is still kept."""


class Peer:
    def __init__(self, host: str) -> None:
        self.host = host
        self.reasons: list[str] = []

    def fail(self, reason: str) -> None:
        self.reasons.append(reason)


def twin_choice(present: list[Peer]) -> Peer:
    """Return the one of these that must end; they are in the order in which they came."""
    counts = Counter(peer.host for peer in present)
    most = max(counts.values())
    return next(peer for peer in present if counts[peer.host] == most)


def test_an_address_with_many_peers_ends_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 10)
    subject: Strangers[Peer] = Strangers("authentications")
    quiet = [Peer("10.0.0.1") for _ in range(3)]
    flood = [Peer("10.0.0.2") for _ in range(50)]
    for peer in (*quiet, *flood):
        subject.add(peer)
    assert subject.present == [*quiet, *flood[-7:]]
    reason = "10 other authentications are unfinished, and it is the oldest of 8 from 10.0.0.2: no address has more"
    assert [peer.reasons for peer in flood] == [[reason]] * 43 + [[]] * 7
    # The quiet address may have as many as the other one, and then counts as equal: the one that adds has more.
    late = [Peer("10.0.0.1") for _ in range(2)]
    for peer in late:
        subject.add(peer)
    assert subject.present == [*quiet, *flood[-5:], *late]
    subject.add(newest := Peer("10.0.0.2"))
    assert subject.present == [*quiet, *flood[-4:], *late, newest]


@pytest.mark.parametrize("hosts", [1, 2, 5, 40])
def test_the_choice_is_that_of_the_twin(hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 12)
    chance = random.Random(hosts)
    subject: Strangers[Peer] = Strangers("authentications")
    present: list[Peer] = []
    ended = 0
    for _ in range(1500):
        if present and chance.random() < 0.3:
            left = chance.choice(present)
            present.remove(left)
            subject.discard(left)
            subject.discard(left)
        else:
            added = Peer(f"10.0.0.{min(chance.randrange(hosts), chance.randrange(hosts))}")
            subject.add(added)
            present.append(added)
            if len(present) > 12:
                chosen = twin_choice(present)
                present.remove(chosen)
                assert len(chosen.reasons) == 1
                ended += 1
        assert subject.present == present
    assert ended > 300


def test_its_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while peers come and are authenticated below the limit."""
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 10)
    subject: Strangers[Peer] = Strangers("authentications")
    hosts = []
    for number in range(500):
        peer = Peer(Host(f"10.0.0.{number}"))
        hosts.append(weakref.ref(peer.host))
        subject.add(peer)
        subject.discard(peer)
    del peer
    assert len([host for host in hosts if host() is not None]) <= 40
