"""Reads the range of a plan, in the task that executes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from gregor.spark_jobs.arrow.decoder import AbortedTransactions, Decoder
from gregor.spark_jobs.arrow.plan import ReadPlan
from gregor.spark_jobs.arrow.rows import RowBuilder
from gregor.spark_jobs.arrow.wire import WireReader
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError

_idle: defaultdict[ClientSettings, list[Cluster]] = defaultdict(list)
"""Clusters whose connections no task uses: a worker process executes one task after the other."""


def read(plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read a range: yield its rows in the order of their offsets, in record batches that are not empty. Ends when the
    end offset is reached, also when the last offsets have no records. Raises DataLoss, and JobError otherwise."""
    own = plan.range
    if own.start_offset >= own.end_offset:
        return
    if plan.mode == "files":
        raise JobError("mode=files: segment files cannot be read yet; use mode=wire")
    rows = RowBuilder(own.topic, own.partition, plan.columns, plan.include_headers, plan.max_batch_rows)
    aborted = AbortedTransactions() if plan.read_committed else None
    decoder = Decoder(
        rows,
        own.start_offset,
        own.end_offset,
        aborted=aborted,
        filters=plan.filters,
        checks_crc=plan.settings.check_crcs,
    )
    with _cluster(plan.settings) as cluster:
        yield from WireReader(cluster, plan, decoder, aborted).read()


@contextmanager
def _cluster(settings: ClientSettings) -> Iterator[Cluster]:
    """Lend a cluster for one read. Its metadata is fetched anew, its connections stay."""
    idle = _idle[settings]
    cluster = idle.pop() if idle else Cluster(settings)
    cluster.refresh()
    try:
        yield cluster
    finally:
        idle.append(cluster)


def close_idle() -> None:
    """Close the connections that no read uses at present."""
    for clusters in _idle.values():
        while clusters:
            clusters.pop().close()
