"""The data source without a JVM: what it refuses, and the warnings in the log of the driver."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader

from gregor.spark_jobs.datasource import GregorDataSource
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source import datasource

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
LIMIT = {"maxOffsetsPerTrigger": "10"}


def stream(**options: str) -> DataSourceStreamReader:
    source = GregorDataSource({**OPTIONS, **options})
    return source.streamReader(source.schema())


def test_settings_without_an_effect_are_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    security = {"kafka.security.protocol": "PLAINTEXT", "kafka.ssl.truststore.location": "/no/file"}
    source = GregorDataSource({**OPTIONS, **security, "kafka.max.poll.records": "5", "kafka.fetch.max.bytes": "1"})
    reader = source.reader(source.schema())
    cloudpickle.loads(cloudpickle.dumps(reader))
    assert [record.getMessage() for record in caplog.records] == [
        'kafka.max.poll.records has no effect on what format("gregor") reads: rows are not polled one by one; '
        "maxRecordsPerPartition limits the offsets of a task.",
        'kafka.ssl.truststore.location has no effect on what format("gregor") reads: connections have no TLS, as '
        "kafka.security.protocol is PLAINTEXT; set it to SSL or SASL_SSL.",
    ]


def test_settings_of_no_client_are_refused() -> None:
    with pytest.raises(JobError, match="the nearest name is kafka.max.poll.records"):
        GregorDataSource({**OPTIONS, "kafka.max.pol.records": "5"}).schema()


def test_a_limit_before_spark_4_2_is_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Available-now cannot be noticed there: such a query would read one micro-batch without a word."""
    monkeypatch.setattr(datasource, "HAS_ADMISSION_CONTROL", False)
    stream()
    stream(**LIMIT, streamEndingOffsets='{"t":{"0":5}}')
    assert caplog.records == []
    stream(**LIMIT)
    (record,) = caplog.records
    assert "maxOffsetsPerTrigger=10 without streamEndingOffsets: with the trigger available-now" in record.getMessage()
    assert "reads one micro-batch of that size and ends" in record.getMessage()


def test_the_folder_of_a_stopped_broker_is_no_stream() -> None:
    source = GregorDataSource({"path": "/data", "subscribe": "t"})
    schema = source.schema()
    with pytest.raises(JobError, match="path='/data' is not valid for a stream: .* which gets no more records"):
        source.streamReader(schema)
