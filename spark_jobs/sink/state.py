"""The state of a transactional id: which query owns it, and the last batch that the query has committed.

It is a record of a compacted topic, which each transaction of the sink writes with the rows of its batch. The key is
the transactional id in UTF-8, the value is JSON:

    version   1
    queryId   the id of the query, which its checkpoint keeps
    runId     the start of the query that owns the transactional id
    batchId   the last committed batch, -1 for none
    earlier   by query id the last committed batch of queries that owned the transactional id before
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from gregor.spark_jobs.errors import JobError

STATE_VERSION = 1
NO_BATCH = -1
_MAX_EARLIER = 32


@dataclass(frozen=True)
class Owner:
    """One run of one query."""

    query_id: str
    run_id: str


@dataclass(frozen=True)
class BatchState:
    """The value of a state record."""

    owner: Owner
    batch_id: int = NO_BATCH
    earlier: dict[str, int] = field(default_factory=dict)

    def committed(self, batch_id: int) -> BatchState:
        """Return the state after a batch of the owner."""
        return replace(self, batch_id=batch_id)

    def owned_by(self, owner: Owner) -> BatchState:
        """Return the state after another run of the query, or another query, has begun to own it."""
        if owner.query_id == self.owner.query_id:
            return replace(self, owner=owner)
        earlier = {name: batch for name, batch in self.earlier.items() if name != self.owner.query_id}
        earlier[self.owner.query_id] = self.batch_id
        batch_id = earlier.pop(owner.query_id, NO_BATCH)
        return BatchState(owner, batch_id, dict(list(earlier.items())[-_MAX_EARLIER:]))

    def encode(self) -> bytes:
        """Return the value of the record."""
        return json.dumps(
            {
                "version": STATE_VERSION,
                "queryId": self.owner.query_id,
                "runId": self.owner.run_id,
                "batchId": self.batch_id,
                "earlier": self.earlier,
            }
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> BatchState:
        """Return the state of a record; raise JobError for a value that this version did not write."""
        try:
            data = json.loads(value)
            version = data["version"]
            if version == STATE_VERSION:
                owner = Owner(str(data["queryId"]), str(data["runId"]))
                earlier = {str(name): int(batch) for name, batch in data["earlier"].items()}
                return cls(owner, int(data["batchId"]), earlier)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise JobError(
                f"a state record is not one of this sink: {value[:100]!r}; give the sink a stateTopic of its own"
            ) from None
        raise JobError(
            f"a state record has version {version}, this release reads {STATE_VERSION}; use the release that wrote it"
        )
