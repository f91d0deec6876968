"""The messages of a broker to its watcher: lines of JSON.

{"broker": "broker 1 (pid 4711)", "label": "", "settings": {"zookeeper.connect": ...}}    once, at first
{"session": 72057, "password": "0a..", "timeout_ms": 18000, "servers": [["zk1", 2181]]}   each new session
{"farewell": true}                                                                        the broker ends well

The first line and the last complete one decide what the watcher does: its process keeps no others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gregor.broker.session_watcher.session_end import Session


class Watched:
    """A broker as its watcher knows it after its messages; an incomplete last one does not count."""

    def __init__(self, received: bytes) -> None:
        self.broker = "the broker"
        self.label = ""
        self.settings: dict[str, str] = {}
        """The settings that a connection to ZooKeeper and the log need."""
        self.session: Session | None = None
        """The session to close when the broker has ended; None before the first, and after a farewell."""
        for line in received.split(b"\n")[:-1]:
            self._apply(json.loads(line))

    def _apply(self, message: Mapping[str, Any]) -> None:
        if "broker" in message:
            self.broker, self.label, self.settings = message["broker"], message["label"], message["settings"]
        elif "session" in message:
            self.session = session_of(message)
        elif message.get("farewell"):
            self.session = None


def encode_broker(broker: str, label: str, settings: Mapping[str, str]) -> bytes:
    return _line({"broker": broker, "label": label, "settings": dict(settings)})


def encode_session(session: Session) -> bytes:
    return _line(
        {
            "session": session.session_id,
            "password": session.password.hex(),
            "timeout_ms": session.timeout_ms,
            "servers": session.servers,
        }
    )


def encode_farewell() -> bytes:
    return _line({"farewell": True})


def session_of(message: Mapping[str, Any]) -> Session:
    """Return the session of a message. Raises KeyError, TypeError or ValueError for another one."""
    servers = tuple((str(host), int(port)) for host, port in message["servers"])
    return Session(int(message["session"]), bytes.fromhex(message["password"]), int(message["timeout_ms"]), servers)


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
