"""Spark's connector on three brokers: a stream from topic to topic while the leader of the source is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from gregor.spark_jobs.sources import stream_topic
from tests.spark_jobs.topics import CLIENT_S, Topics
from tests.support.gregor_cluster import GregorCluster, until

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

PATIENCE_S = 120.0
"""For a first batch, and for one with a change of the leader, on a busy machine."""
SETTINGS = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}
SOURCE = {
    "startingOffsets": "earliest",
    # Its admin client sends requests to a broker that has left the cluster for this time, one minute by default.
    "kafka.default.api.timeout.ms": "10000",
    "kafka.request.timeout.ms": "5000",
}


def test_a_leader_killed_under_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The query continues, and no record is missing."""
    with GregorCluster(tmp_path / "cluster", overrides=SETTINGS) as cluster:
        topics = Topics(cluster.bootstrap)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic("source", 2, 3), NewTopic("target", 2, 3)]).values():
            future.result(CLIENT_S)
        query = (
            stream_topic(spark, cluster.bootstrap, "source", SOURCE)
            .select("value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("topic", "target")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        sent: set[str] = set()

        def send(what: str) -> None:
            values = [f"{what} {number}" for number in range(100)]
            topics.produce("source", values)
            sent.update(values)

        def arrived() -> bool:
            assert query.isActive, query.exception()
            return {value.decode() for _, value in topics.read("target") if value is not None} == sent

        try:
            send("with all")
            until(arrived, "the first records arrive", PATIENCE_S)
            leader = cluster.until_led("source")
            cluster.kill(leader)
            send("without one")
            until(arrived, f"records arrive without broker {leader}", PATIENCE_S)
            cluster.start(leader)
            cluster.until_isr("source", [0, 1, 2])
            send("with all again")
            until(arrived, "records arrive", PATIENCE_S)
        finally:
            query.stop()
