"""The job `windows` over growing numbers of records: its time and its state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gregor.spark_jobs.jobs.common.job import STATE_STORE
from gregor.spark_jobs.transforms.windows import windowed
from tests.bench.figures import Figure
from tests.bench.spark.data import Kind, fill
from tests.bench.spark.session import source_options
from tests.support.processes import BrokerProcess

FULL_RECORDS = 10_000_000
SHARES = (0.1, 0.3, 1.0)
BATCHES_OF_FULL_RUN = 20
MAX_OVER_LINEAR = 1.3


def windows(session: Any, broker: BrokerProcess, records: int, folder: Path) -> Iterator[Figure]:
    """Count records of 1,000 keys in windows of a minute, one record each millisecond."""
    for key, value in STATE_STORE.items():
        session.conf.set(key, value)
    size = max(1000, records // BATCHES_OF_FULL_RUN)
    for_each_s = []
    for number, share in enumerate((SHARES[0], *SHARES)):
        topic = f"windows-{number}"
        count = fill(broker.port, topic, Kind(100, 0), int(records * share))
        seconds, progress = run(session, broker.bootstrap, topic, size, folder / topic)
        if not number:
            continue  # the JVM has compiled its code
        state = [one["stateOperators"][0] for one in progress if one["stateOperators"]]
        assert sum(one["numInputRows"] for one in progress) == count
        for_each_s.append(seconds / count)
        yield Figure(f"windows on {count} records", seconds, "s")
        yield Figure("  records for each second, thousands", count / seconds / 1000, "")
        yield Figure("  largest state, rows", max(one["numRowsTotal"] for one in state), "")
        yield Figure("  largest state, memory", max(one["memoryUsedBytes"] for one in state) / 1e6, "MB")
    over_linear = for_each_s[-1] / for_each_s[0]
    yield Figure("time of a record, most records over fewest", over_linear, "", MAX_OVER_LINEAR)


def run(session: Any, bootstrap: str, topic: str, size: int, checkpoint: Path) -> tuple[float, list[Any]]:
    """Run the query over all records; return its time and the progress of its batches."""
    options = source_options(bootstrap, topic) | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(size)}
    records = session.readStream.format("gregor").options(**options).load()
    rows = records.selectExpr("timestamp time", "cast(key as string) key")
    writer = windowed(rows, "key", "1 minute", None, "10 minutes").writeStream.format("noop").outputMode("update")
    began = time.monotonic()
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        return time.monotonic() - began, list(query.recentProgress)
    finally:
        query.stop()
