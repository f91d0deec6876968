"""The listeners of a cluster, to which tasks connect: the bootstrap servers, and those that its brokers advertise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.bootstrap import parse_servers
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings

METADATA_TIMEOUT_MS = 10_000


class Listeners(NamedTuple):
    """The addresses of a cluster: tasks connect to one of the bootstrap servers, then to all that brokers advertise."""

    bootstrap: Sequence[tuple[str, int]]
    advertised: Sequence[tuple[str, int]] = ()


def listeners_of(options: Mapping[str, str]) -> Listeners:
    """Return the listeners of a cluster as its brokers advertise them to the driver, by the options of a source.

    Those of a cluster whose security only Spark's connector has are not known. Raise JobError if no broker responds.
    """
    try:
        settings = ClientSettings.from_options(options)
    except KafkaFailure as failure:
        if failure.code != ErrorCode.SECURITY_DISABLED:
            raise
        return Listeners(parse_servers(options["kafka.bootstrap.servers"]))
    with Cluster(settings) as cluster:
        advertised = cluster.retrying(METADATA_TIMEOUT_MS).run(cluster.addresses)
    return Listeners(settings.bootstrap_servers, sorted(advertised.values()))
