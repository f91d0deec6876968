"""The last batch of a query in the history of an Iceberg table, and how "never written" differs from "expired".

Each batch is one snapshot, and the summary of the snapshot has the query and the number of the batch. The history is
the chain of the ancestors of the current snapshot, the newest first; expired snapshots are missing at its end.
Therefore a query has, from before its first batch, a baseline in a property of the table, which no expiry removes: the
last batch of the query as of some snapshot. A history that reaches neither a batch of the query, nor the snapshot of
its baseline, nor the first snapshot of the table proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

QUERY, BATCH = "gregor-query", "gregor-batch"
"""The properties in the summary of a snapshot. They are in lower case, as Spark passes the options of a writer."""
BASELINE = "gregor.query."
"""The property of a table that has the baseline of a query begins with this and ends with the id of the query."""
_NONE = "none"


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a table, with the query and the batch of its summary."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    query_id: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True)
class Baseline:
    """The last batch of a query as of a snapshot, None before the first batch and before the first snapshot."""

    batch_id: int | None
    snapshot_id: int | None

    @property
    def text(self) -> str:
        """Return the value of the table's property."""
        return f"{_text(self.batch_id)}@{_text(self.snapshot_id)}"


def parse_baseline(text: str) -> Baseline:
    """Parse the value of the table's property; raise ValueError for another text."""
    batch_id, _, snapshot_id = text.partition("@")
    return Baseline(_number(batch_id), _number(snapshot_id))


def last_batches(history: Iterable[Snapshot], baselines: Mapping[str, Baseline | None]) -> dict[str, int | None]:
    """Return the last batch of each query, None for one without a batch; a query of which nothing is proven is missing.

    A query without a baseline has no batch unless the history has one, as the baseline precedes the first batch.
    """
    found: dict[str, int | None] = {}
    unresolved = dict(baselines)
    parent_id: int | None = None
    for snapshot in history:
        if snapshot.query_id in unresolved:
            del unresolved[snapshot.query_id]
            found[snapshot.query_id] = snapshot.batch_id
        for query_id, baseline in list(unresolved.items()):
            if baseline is not None and baseline.snapshot_id == snapshot.snapshot_id:
                del unresolved[query_id]
                found[query_id] = baseline.batch_id
        if not unresolved:
            return found
        parent_id = snapshot.parent_id
    is_whole = parent_id is None
    found.update({query_id: None for query_id, baseline in unresolved.items() if is_whole or baseline is None})
    return found


def _text(number: int | None) -> str:
    return _NONE if number is None else str(number)


def _number(text: str) -> int | None:
    return None if text == _NONE else int(text)
