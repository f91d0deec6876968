"""Writing: the exactly-once sink, the plain one and the connector's, each batch of the same rows to a topic."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gregor.spark_jobs.sink.foreach_batch import at_least_once, exactly_once
from tests.bench.compare import Values
from tests.bench.figures import Figure, create_topics
from tests.bench.spark.data import PARTITIONS
from tests.bench.spark.turns import compared, run_turns
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection

FILES = 4
"""Each is a batch."""
MIN_OF_PLAIN = 0.7
EXACTLY_ONCE, PLAIN, CONNECTOR = "exactly once", "plain", "connector"

WriteBatch = Callable[[Any, int], None]


def sinks(
    session: Any, broker: BrokerProcess, records: int, rounds: int, folder: Path
) -> tuple[list[Values], list[Figure]]:
    """Write `records` rows of 100 B in some batches by each sink."""
    count = max(FILES, records // FILES)
    rows = session.range(count * FILES).selectExpr(
        "concat('key-', id % 1000) key",
        "rpad(concat('{\"number\":', hash(id), ',\"text\":\"'), 98, 'x') || '\"}' value",
    )
    rows.repartition(FILES).write.parquet(str(folder / "rows"))
    with RawConnection(broker.port) as connection:
        create_topics(
            connection, ["written"], PARTITIONS, {"retention.bytes": "100000000", "segment.bytes": "50000000"}
        )
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "written"}
    runs = 0

    def load(write: WriteBatch) -> int:
        nonlocal runs
        runs += 1
        stream = session.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows"))
        query = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(folder / f"checkpoint-{runs}")).start().awaitTermination()
        return count * FILES

    def by_connector(batch: Any, batch_id: int) -> None:
        batch.write.format("kafka").options(**options).save()

    sides = {
        EXACTLY_ONCE: lambda: load(exactly_once(f"bench-{runs}", options)),
        PLAIN: lambda: load(at_least_once(options)),
        CONNECTOR: lambda: load(by_connector),
    }
    found = run_turns("write 100 B", sides, rounds, [broker.pid])
    values = compared(f"sink {EXACTLY_ONCE}", found[EXACTLY_ONCE], found[CONNECTOR])
    values += compared(f"sink {PLAIN}", found[PLAIN], found[CONNECTOR])
    of_plain = compared("", found[EXACTLY_ONCE], found[PLAIN])[0].ratios
    return values, [Figure("exactly once over the plain sink", statistics.median(of_plain), "", minimum=MIN_OF_PLAIN)]
