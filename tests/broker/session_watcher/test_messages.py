from __future__ import annotations

import pytest

from gregor.broker.session_watcher.messages import Watched, encode_broker, encode_farewell, encode_session
from gregor.broker.session_watcher.session_end import Session

SESSION = Session(-5, b"\x00\xff", 18000, (("zk1", 2181), ("::1", 2182)))
SETTINGS = {"zookeeper.connect": "zk1:2181"}


@pytest.mark.parametrize("size_bytes", [1, 7, 10_000])
def test_a_session_arrives_in_any_parts(size_bytes: int) -> None:
    sent = encode_broker("The broker (pid 7)", "broker 1", SETTINGS) + encode_session(SESSION)
    watched = Watched(b"")
    for at in range(0, len(sent), size_bytes):
        assert watched.session is None
        watched = Watched(sent[: at + size_bytes])
    assert watched.session == SESSION
    assert (watched.broker, watched.label, watched.settings) == ("The broker (pid 7)", "broker 1", SETTINGS)


def test_the_last_session_counts_and_none_after_the_farewell() -> None:
    sent = encode_session(SESSION) + encode_session(SESSION._replace(session_id=6))
    watched = Watched(sent)
    assert watched.session is not None
    assert watched.session.session_id == 6
    assert Watched(sent + encode_farewell()).session is None


def test_half_a_farewell_is_none() -> None:
    assert Watched(encode_session(SESSION) + encode_farewell()[:-1]).session == SESSION
