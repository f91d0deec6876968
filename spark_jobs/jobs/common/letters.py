"""The tasks' side of the dead-letter topic: a function over Arrow arrays that produces the records.

Spark evaluates the annotations of the function, so that pyarrow is imported by the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from gregor.spark_jobs.errors import JobError

HEADER = "__connect.errors."
FLUSH_TIMEOUT_S = 60.0


def storing(job: str, topic: str, settings: dict[str, Any]) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return the function of a task: of letters, null for a good row, to whether the row is good."""

    def store(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        letters: Letters | None = None
        for batch in batches:
            if batch.null_count < len(batch):
                letters = letters or Letters(job, topic, settings)
                letters.store(batch.drop_null())
            yield pc.is_null(batch)

    return store


class Letters:
    """The producer of one task."""

    def __init__(self, job: str, topic: str, settings: dict[str, Any]) -> None:
        self._job, self._topic = job, topic
        self._producer = Producer(settings)
        self._failures: list[str] = []

    def store(self, rows: pa.Array) -> None:
        """Produce one record for each row, and wait until all are acknowledged."""
        for row in rows.to_pylist():
            while True:
                try:
                    self._producer.produce(
                        self._topic,
                        key=row["raw_key"],
                        value=row["raw_value"],
                        headers=headers_of(row, self._job),
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:  # the queue of the producer is full
                    self._producer.poll(1)
            self._producer.poll(0)
        self._flush()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _flush(self) -> None:
        """Raise JobError if a record is not acknowledged, so that the task fails."""
        waiting = self._producer.flush(FLUSH_TIMEOUT_S)
        if self._failures or waiting:
            cause = self._failures[0] if self._failures else f"no acknowledgement within {FLUSH_TIMEOUT_S:.0f} s"
            count = len(self._failures) + waiting
            raise JobError(f"{count} records were not stored in the dead-letter topic {self._topic}: {cause}")


def headers_of(row: Mapping[str, Any], job: str) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a dead letter: those of the record, then its origin and the reason."""
    own = [(header["key"], header["value"]) for header in row.get("headers") or []]
    added = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "connector.name": job,
        "exception.message": row["problem"],
    }
    return own + [(HEADER + name, str(value).encode()) for name, value in added.items()]
