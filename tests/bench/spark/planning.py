"""Planning of a micro-batch over many partitions: in a process of its own as Spark runs it, and within Spark."""

from __future__ import annotations

import json
import pickle
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, create_topics, produce_request
from tests.bench.spark.session import source_options
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection

FULL_PARTITIONS = 1000
MAX_PLANNING_MS = 100
PLANS = 7
BATCHES = 6
STEPS = ("latestOffset", "queryPlanning")
"""Of a micro-batch, in the progress of a query."""


def planning(session: Any, broker: BrokerProcess, partitions: int, folder: Path) -> Iterator[Figure]:
    topic = f"wide-{partitions}"
    with RawConnection(broker.port) as connection:
        create_topics(connection, [topic], partitions, {"retention.ms": "-1"})
        append_everywhere(connection, topic, partitions)
        yield Figure(
            f"plan of a batch over {partitions} partitions with new records",
            statistics.median(plans_ms(broker.bootstrap, topic)),
            "ms",
            MAX_PLANNING_MS,
        )
        for source in ("gregor", "kafka"):
            found = statistics.median(steps_ms(session, source, broker.bootstrap, topic, connection, folder))
            told = "connector" if source == "kafka" else "gregor"
            yield Figure(f"{' + '.join(STEPS)} of Spark with {told}", found, "ms")


def append_everywhere(connection: RawConnection, topic: str, partitions: int) -> None:
    """Append a record to each partition."""
    requests = produce_request(topic, 0)
    records = requests.topic_data[0].partition_data[0].records
    kind = type(requests.topic_data[0].partition_data[0])
    requests.topic_data[0].partition_data = [kind(index=index, records=records) for index in range(partitions)]
    answer = connection.ask(requests, 9)
    assert {one.error_code for one in answer.responses[0].partition_responses} == {0}


def plans_ms(bootstrap: str, topic: str) -> list[float]:
    """Return the times of plans: positions and partitions as the process that Spark has for it exchanges them."""
    from gregor.spark_jobs.source.datasource import GregorDataSource

    options = source_options(bootstrap, topic) | {"startingOffsets": "earliest"}
    source = GregorDataSource(options)
    reader = source.streamReader(source.schema())
    times = []
    try:
        start = reader.initialOffset()
        for _ in range(PLANS):
            began = time.perf_counter()
            end = json.loads(json.dumps(reader.latestOffset()))
            parts = [pickle.dumps(part) for part in reader.partitions(start, end)]
            times.append((time.perf_counter() - began) * 1000)
            assert len(parts) == len(end[topic])
    finally:
        reader.stop()
    return times


def steps_ms(
    session: Any, source: str, bootstrap: str, topic: str, connection: RawConnection, folder: Path
) -> list[float]:
    """Run a query of which each batch has one record; return the time of its planning steps in each batch."""
    reader = session.readStream.format(source).options(**source_options(bootstrap, topic))
    writer = reader.option("startingOffsets", "latest").load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder / f"{topic}-{source}")).start()
    try:
        query.processAllAvailable()
        for number in range(BATCHES):
            request = produce_request(topic, number)
            assert connection.ask(request, 9).responses[0].partition_responses[0].error_code == 0
            query.processAllAvailable()
        batches = [one for one in query.recentProgress if one["numInputRows"] > 0]
    finally:
        query.stop()
    return [sum(one["durationMs"].get(step, 0) for step in STEPS) for one in batches[1:] or batches]
