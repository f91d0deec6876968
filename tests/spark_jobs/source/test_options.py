"""gregor.spark_jobs.source.options: the names and rules of Spark's Kafka connector."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import StreamOffset
from gregor.spark_jobs.source.options import Limit, SourceOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def options(streaming: bool = False, **given: str) -> SourceOptions:
    return SourceOptions.from_options({**SERVERS, "subscribe": "t", **given}, streaming)


def test_defaults_of_a_batch_and_of_a_stream() -> None:
    batch, stream = options(), options(streaming=True)
    assert (batch.starting, batch.ending) == (Limit(everywhere=EARLIEST), Limit(everywhere=LATEST))
    assert stream.starting == Limit(everywhere=LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert stream.max_trigger_delay_ms == 900_000
    assert pickle.loads(pickle.dumps(batch)) == batch


def test_names_in_any_case_and_every_value() -> None:
    made = options(
        streaming=True,
        STARTINGOFFSETS='{"t": {"0": 23, "1": -2}}',
        failOnDataLoss="FALSE",
        minPartitions="7",
        maxRecordsPerPartition="100",
        maxOffsetsPerTrigger="9",
        minOffsetsPerTrigger="3",
        maxTriggerDelay="90s",
        includeHeaders="true",
        groupIdPrefix="p",
        mode="wire",
        startingOffsetsByTimestampStrategy="LATEST",
        **{"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "10", "kafkaConsumer.pollTimeoutMs": "1"},
    )
    assert made.starting.offsets == {T0: 23, T1: -2}
    assert not made.fail_on_data_loss
    assert (made.min_partitions, made.max_records_per_partition) == (7, 100)
    assert (made.max_offsets_per_trigger, made.min_offsets_per_trigger, made.max_trigger_delay_ms) == (9, 3, 90_000)
    assert (made.include_headers, made.group_id_prefix, made.mode) == (True, "p", "wire")
    assert (made.latest_if_no_match, made.attempts, made.retry_interval_ms) == (True, 5, 10)


def test_a_timestamp_has_precedence_over_timestamps_and_they_over_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}
    assert options(**given).starting == Limit(timestamps_ms={T0: 5})
    assert options(**given, startingTimestamp=" 1700000000000 ").starting == Limit(timestamp_ms=1_700_000_000_000)


def test_the_three_ways_to_name_partitions() -> None:
    assert options(subscribe=" a, b,a,,").topics == ("a", "b")
    base = dict(SERVERS)
    assert SourceOptions.from_options({**base, "subscribePattern": "t.*"}, False).pattern == "t.*"
    assert SourceOptions.from_options({**base, "assign": '{"t":[1,0]}'}, False).assignment == (T1, T0)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribePattern": "x"}, "exactly one of the options"),
        ({"subscribe": " , "}, "names no topic; give names, with commas"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"minPartitions": "3000000000"}, "to 2147483647"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first'; expected is JSON such as"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, "expected is JSON"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "expected is JSON"),
        ({"startingOffsets": '{"t":{"-1":1}}'}, "expected is JSON"),
        ({"startingOffsets": "[]"}, "expected is JSON"),
        ({"startingTimestamp": "now"}, "startingTimestamp is 'now'"),
        ({"startingOffsetsByTimestamp": "{"}, "123456789"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        ({"maxTriggerDelay": "soon"}, "90s, 15m or 2h"),
        ({"mode": "magic"}, "auto, wire, files"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets to"),
        ({"kafka.key.deserializer": "x"}, "columns of bytes"),
        ({"kafka.value.deserializer": "x"}, "columns of bytes"),
        ({"kafka.enable.auto.commit": "true"}, "groupIdPrefix commit them"),
        ({"kafka.interceptor.classes": "x"}, "does not run classes of Java"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.ssl.truststore.location": "/none.pem"}, "/none.pem"),
        ({"maxOffsetPerTrigger": "1"}, "no option 'maxoffsetpertrigger'"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_wrong_options_are_refused(given: dict[str, str], text: str, streaming: bool) -> None:
    with pytest.raises(JobError, match=text):
        options(streaming, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"subscribePattern": "("},
        {"subscribePattern": " "},
        {"assign": "t"},
        {"assign": "{}"},
        {"assign": '{"t":["x"]}'},
        {},
    ],
)
def test_wrong_partitions_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(JobError):
        SourceOptions.from_options({**SERVERS, **given}, False)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingOffsets": "Latest"}, "cannot be latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "cannot be latest .-1., as they are for t-0"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "cannot be earliest .-2., as they are for t-0"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":5}}'}, "name different partitions"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "t-0 is 5, after its"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
            "t-0 is 5, after its",
        ),
    ],
)
def test_limits_of_a_batch(given: dict[str, str], text: str) -> None:
    with pytest.raises(JobError, match=text):
        options(**given)


def test_limits_that_a_batch_may_have() -> None:
    options(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":-1}}')
    options(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":5}}', maxOffsetsPerTrigger="1")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(JobError, match=f"{name} is not valid for a stream"):
        options(streaming=True, **{name: "latest"})


def test_the_fixed_end_of_a_stream_is_a_position() -> None:
    text = '{"#topicIds":{"t":"AAECAwQFBgcICQoLDA0ODw"},"t":{"0":23}}'
    end = options(streaming=True, streamEndingOffsets=text).stream_end
    assert end == StreamOffset({TopicPartition("t", 0): 23}, {"t": bytes(range(16))})
    assert options(streaming=True).stream_end is None
    with pytest.raises(JobError, match="streamEndingOffsets is not valid for a batch; give endingOffsets"):
        options(streamEndingOffsets=text)
    for wrong in ("latest", "[1]", '{"t":{"0":"x"}}'):
        with pytest.raises(JobError, match="streamEndingOffsets is .*; expected is JSON such as"):
            options(streaming=True, streamEndingOffsets=wrong)
    with pytest.raises(JobError, match=r"expected is JSON such as [^-]*$"):
        options(streaming=True, streamEndingOffsets="latest")
    for offset in (-1, -2, -3):
        with pytest.raises(JobError, match=f"streamEndingOffsets has the offset {offset} for t-1, which is no"):
            options(streaming=True, streamEndingOffsets=f'{{"t":{{"0":23,"1":{offset}}}}}')


def test_the_least_of_a_trigger_is_not_above_its_most() -> None:
    with pytest.raises(JobError, match="minOffsetsPerTrigger=3 is above maxOffsetsPerTrigger=2; lower the one"):
        options(streaming=True, minOffsetsPerTrigger="3", maxOffsetsPerTrigger="2")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (SERVERS, "kafka.bootstrap.servers is not valid with path='/data': .* read without a cluster"),
        ({"kafka.fetch.min.bytes": "1"}, "kafka.fetch.min.bytes is not valid with path"),
        ({"mode": "wire"}, "mode=wire is not valid with path='/data': there is no broker to fetch from"),
        ({"startingTimestamp": "5"}, "startingTimestamp is not valid with path='/data': no broker finds"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":5}}'}, "endingOffsetsByTimestamp is not valid with path"),
    ],
)
def test_what_the_folder_of_a_stopped_broker_cannot_have_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(JobError, match=text):
        SourceOptions.from_options({"path": "/data", "subscribe": "t", **given}, False)


def test_the_folder_of_a_stopped_broker_needs_no_servers() -> None:
    given = {"path": "/data", "subscribe": "t", "kafka.isolation.level": "read_committed"}
    made = SourceOptions.from_options(given, False)
    assert (made.folder, made.settings.bootstrap_servers) == ("/data", ())
    assert made.settings.read_committed
    assert options().folder is None


def test_a_folder_has_its_absolute_path_in_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for given, folder in (("data", f"{tmp_path}/data"), ("file:///var/data", "/var/data"), ("/a:b", "/a:b")):
        assert SourceOptions.from_options({"path": given, "subscribe": "t"}, False).folder == folder
    with pytest.raises(JobError, match="^path='hdfs://host/data' is no folder of this machine"):
        SourceOptions.from_options({"path": "hdfs://host/data", "subscribe": "t"}, False)


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(JobError, match="kafka.bootstrap.servers is missing"):
        SourceOptions.from_options({"subscribe": "t"}, False)
