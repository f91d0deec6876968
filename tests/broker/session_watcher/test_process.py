"""The watcher's program keeps of its broker's messages what decides at the end."""

from __future__ import annotations

import pytest

from gregor.broker.session_watcher.messages import Watched, encode_broker, encode_farewell, encode_session
from gregor.broker.session_watcher.process import decisive
from gregor.broker.session_watcher.session_end import Session

BROKER = encode_broker("broker 1", "label", {"zookeeper.connect": "zk:2181"})
SESSIONS = [encode_session(Session(number, b"\x01", 6000, (("zk", 2181),))) for number in range(5)]


@pytest.mark.parametrize("size_bytes", [1, 7, 100, 100_000])
@pytest.mark.parametrize("last", [b"", encode_farewell(), SESSIONS[2][:20]], ids=["session", "farewell", "partial"])
def test_the_first_and_the_last_message_decide(size_bytes: int, last: bytes) -> None:
    data = b"".join([BROKER, *SESSIONS, last])
    received = b""
    for begin in range(0, len(data), size_bytes):
        received = decisive(received + data[begin : begin + size_bytes])
    kept, whole = Watched(received), Watched(data)
    assert (kept.broker, kept.settings, kept.session) == (whole.broker, whole.settings, whole.session)
    assert len(received) <= len(BROKER) + 2 * len(SESSIONS[0])
