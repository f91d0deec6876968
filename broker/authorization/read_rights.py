"""The topics that a client is known to be allowed to read: fetches repeat the same check with every request.

Kept by the connection, whose host is always the same, until its principal or the access rules change
(broker.authorization.known_client). Only permissions are remembered: the authorizer decides about everything else, and
writes each denial to the audit log.
"""

from __future__ import annotations

import logging

from gregor.broker.authorization.audit import audit_log
from gregor.protocol.ids import Uuid

MAX_TOPICS = 1024
"""Topics that are remembered for a connection, as clients choose the names. About further ones the authorizer decides
each time, and fetch sessions remember them (broker.fetch.sessions)."""


class ReadRights:
    """READ on topics, as it was allowed under one generation of the access rules."""

    __slots__ = ("generation", "topics")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        """That of the authorizer (broker.authorization.model)."""
        self.topics: set[str | Uuid] = set()
        """The names or ids of topics that the client may read, in the form in which its requests name them."""

    def remember(self, topic: str | Uuid) -> None:
        """Note that the client may read the topic of this name or id, unless allowed operations are logged one by
        one."""
        if len(self.topics) < MAX_TOPICS and not audit_log.isEnabledFor(logging.DEBUG):
            self.topics.add(topic)


NO_RIGHTS = ReadRights(-1)
"""Stands where nothing has been allowed yet: rules have no such generation."""
