"""Reads the range of a plan, in the task that executes it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.decoder import AbortedTransactions, Decoder
from gregor.spark_jobs.arrow.files import FilesReader, LeaderAuthority
from gregor.spark_jobs.arrow.local import find_local_log, has_authorizer
from gregor.spark_jobs.arrow.plan import ReadPlan
from gregor.spark_jobs.arrow.rows import RowBuilder
from gregor.spark_jobs.arrow.segments import PartitionFiles, Unreadable
from gregor.spark_jobs.arrow.stopped import StoppedBroker
from gregor.spark_jobs.arrow.wire import WireReader
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError

MAX_ATTEMPTS = 3
"""Of reading files, in the mode that reads nothing else; each continues where the one before ended."""

_log = logging.getLogger("gregor.spark_jobs.arrow")

_idle: defaultdict[ClientSettings, list[Cluster]] = defaultdict(list)
"""Clusters whose connections no task uses: a worker process executes one task after the other."""


def read(plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read a range: yield its rows in the order of their offsets, in record batches that are not empty. Ends when the
    end offset is reached, also when the last offsets have no records. Raises DataLoss, and JobError otherwise."""
    plan = plan.narrowed()
    own = plan.range
    if own.start_offset >= own.end_offset:
        return
    if plan.folder is not None:
        yield from read_stopped(StoppedBroker(plan.folder), plan)
        return
    decoder, aborted = _decoder_of(plan)
    with _cluster(plan.settings) as cluster:
        if plan.mode != "wire":
            yield from _read_files(cluster, plan, decoder, aborted)
        if decoder.next_offset < own.end_offset:
            yield from WireReader(cluster, plan, decoder, aborted).read()


def read_stopped(broker: StoppedBroker, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read a range, narrowed to its filters, from the folder of a stopped broker. Raises JobError."""
    decoder, aborted = _decoder_of(plan)
    try:
        files = broker.files(plan.range.topic, plan.range.partition)
        yield from FilesReader(files, broker, plan, decoder, aborted).read()
    except Unreadable as error:
        raise JobError(str(error)) from error


def _decoder_of(plan: ReadPlan) -> tuple[Decoder, AbortedTransactions | None]:
    """Return a decoder of the range, and the aborted transactions that it follows: with read_committed."""
    own = plan.range
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
    return decoder, aborted


def _read_files(
    cluster: Cluster, plan: ReadPlan, decoder: Decoder, aborted: AbortedTransactions | None
) -> Iterator[pa.RecordBatch]:
    """Read the segment files on this host as far as possible: the rest is left to fetches unless the mode is files.

    A range of a topic that was made again is left to fetches in each mode, which report the loss and fetch nothing.
    """
    own = plan.range
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            if plan.mode == "auto":
                log = find_local_log(cluster, own.topic, own.partition)
            else:
                log = cluster.retrying().run(lambda: find_local_log(cluster, own.topic, own.partition))
            if not own.is_of(log.topic_id):
                return
            if plan.mode == "auto" and has_authorizer(cluster, log.leader):
                return
            files = PartitionFiles(log.path, log.topic_id)
            key = TopicPartition(own.topic, own.partition)
            leader = LeaderAuthority(cluster, key, log, plan.read_committed)
            yield from FilesReader(files, leader, plan, decoder, aborted).read()
            return
        except (Unreadable, KafkaFailure) as error:
            if plan.mode == "files" and isinstance(error, KafkaFailure):
                raise
            _log.info(
                "%s-%s is not read from files behind offset %s: %s",
                own.topic,
                own.partition,
                decoder.next_offset - 1,
                error,
            )
            if plan.mode == "auto":
                return
            if attempt == MAX_ATTEMPTS:
                raise JobError(
                    f"partition {own.topic}-{own.partition} cannot be read from files: {error}. Use mode=auto, which "
                    f"fetches what it cannot read from files"
                ) from error
            cluster.refresh()


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
