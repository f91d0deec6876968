"""A cluster with SASL_SSL alone for clients: it is read and written, and jobs check it, without Spark's connector."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.topics import read_topic
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.retries import SystemClock
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.common.dead_letters import producer_options
from gregor.spark_jobs.jobs.common.letters import storing
from gregor.spark_jobs.jobs.common.options import Options
from gregor.spark_jobs.jobs.common.sources import lag_of, require_topics
from gregor.spark_jobs.jobs.common.tombstones import retention_of
from gregor.spark_jobs.jobs.two_topics import Options as JoinOptions
from gregor.spark_jobs.jobs.two_topics import table_of
from gregor.spark_jobs.sink.driver import BatchDriver
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.producer import Producer
from gregor.spark_jobs.sink.state import Owner
from gregor.spark_jobs.sink.transactions import Transactions, idempotent_identity
from gregor.spark_jobs.source.lag import Lag
from gregor.spark_jobs.source.offsets import StreamOffset
from tests.support.certificates import Certificates
from tests.support.secured_broker import USER, WAIT_S, SecuredBroker, login

pytestmark = [pytest.mark.slow, pytest.mark.compat]

PASSWORD = "a-password-of-alice"
RETENTION_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), certificates, {"broker": "b"}) as broker:
        broker.add_scram_user(USER, {"SCRAM-SHA-512": PASSWORD})
        yield broker


@pytest.fixture
def topic(server: SecuredBroker) -> str:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    name = uuid.uuid4().hex
    config = {"delete.retention.ms": str(RETENTION_MS)}
    admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(WAIT_S)
    return name


@pytest.fixture
def client(certificates: Certificates) -> dict[str, str]:
    """The settings of a client, without the prefix."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": login("scram.ScramLoginModule", username=USER, password=PASSWORD),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca_file),
    }


def prefixed(client: dict[str, str], server: SecuredBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.address("SASL_SSL")} | {f"kafka.{key}": client[key] for key in client}


def options_of(topic: str, client: dict[str, str], server: SecuredBroker, kind: Any = Options, **more: Any) -> Any:
    return kind(topic=topic, bootstrap_server=server.address("SASL_SSL"), kafka_options=client, **more)


def read(topic: str, client: dict[str, str], server: SecuredBroker, **more: str) -> list[bytes]:
    options = prefixed(client, server) | more
    table = read_topic(server.address("SASL_SSL"), topic, mode="wire", options=options).read_all()
    return sorted(table.column("value").to_pylist())


def test_records_of_the_plain_producer_are_read(topic: str, client: dict[str, str], server: SecuredBroker) -> None:
    options = SinkOptions.from_options({**prefixed(client, server), "topic": topic})
    with Cluster(options.settings) as cluster:
        producer = Producer(cluster, idempotent_identity(cluster), options)
        for number in range(20):
            producer.append(TopicPartition(topic, number % 2), None, b"%02d" % number)
        producer.flush()
    assert read(topic, client, server) == [b"%02d" % number for number in range(20)]


def test_dead_letters_are_stored(topic: str, client: dict[str, str], server: SecuredBroker) -> None:
    options = producer_options(server.address("SASL_SSL"), prefixed(client, server))
    letter = {"raw_key": None, "raw_value": b"broken", "topic": "in", "partition": 0, "offset": 7, "problem": "p"}
    rows = pa.array([None, letter], pa.array([letter]).type)
    assert [found.to_pylist() for found in storing("route", topic, options)(iter([rows]))] == [[True, False]]
    assert read(topic, client, server) == [b"broken"]


def test_batches_of_the_exactly_once_producer_are_there_once(
    topic: str, client: dict[str, str], server: SecuredBroker
) -> None:
    options = SinkOptions.from_options({**prefixed(client, server), "topic": topic})
    with Cluster(options.settings) as cluster:
        driver = BatchDriver(cluster, f"id-{topic}", Owner("query", "run"), options, SystemClock())

        def write(identity: ProducerIdentity, number: int) -> None:
            """Write as a task does, by connections of its own."""
            with Cluster(options.settings) as own:
                transactions = Transactions(own, f"id-{topic}", options.transaction_timeout_ms)
                producer = Producer(own, identity, options, transactions.add_partitions)
                for partition in range(2):
                    producer.append(TopicPartition(topic, partition), None, b"%d-%d" % (number, partition))
                producer.flush()

        written = [driver.write(number, lambda identity, n=number: write(identity, n)) for number in (0, 1, 1)]
    assert written == [True, True, False]
    assert read(topic, client, server, **{"kafka.isolation.level": "read_committed"}) == [
        b"0-0",
        b"0-1",
        b"1-0",
        b"1-1",
    ]


def test_jobs_check_their_topics_before_they_start(topic: str, client: dict[str, str], server: SecuredBroker) -> None:
    options = options_of(topic, client, server)
    require_topics(options.bootstrap_server, [topic], options.client)
    with pytest.raises(JobError, match=r"the topic absent does not exist at localhost:\d+; create it with"):
        require_topics(options.bootstrap_server, [topic, "absent"], options.client)


def test_a_wrong_password_ends_a_job_before_it_starts(
    topic: str, client: dict[str, str], server: SecuredBroker
) -> None:
    wrong = client | {"sasl.jaas.config": login("scram.ScramLoginModule", username=USER, password="wrong")}
    options = options_of(topic, wrong, server)
    with pytest.raises(KafkaFailure, match="SASL_AUTHENTICATION_FAILED"):
        require_topics(options.bootstrap_server, [topic], options.client)


def test_security_of_the_connector_alone_is_left_to_it(topic: str, server: SecuredBroker) -> None:
    options = options_of(topic, {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, server)
    require_topics(options.bootstrap_server, ["absent"], options.client)
    assert lag_of(options) is None
    _, is_known = retention_of(topic, options)
    assert not is_known


def test_lag_retention_and_the_table_of_a_join_are_of_the_cluster(
    topic: str, client: dict[str, str], server: SecuredBroker
) -> None:
    options = options_of(topic, client, server)
    assert retention_of(topic, options) == (RETENTION_MS, True)
    assert lag_of(options) is not None
    lag = Lag(prefixed(client, server), max_wait_s=WAIT_S)
    extents = lag.extents([topic])
    assert extents is not None
    assert lag.records_behind(StreamOffset(dict.fromkeys(extents[topic].ranges, 0)), extents) == 0
    joined = options_of(topic, client, server, JoinOptions, right_topic=topic, as_table=True)
    rows = table_of(None, joined)  # type: ignore[arg-type]  # it needs no session before its first batch
    assert type(getattr(rows, "__self__", None)).__name__ == "LatestTable"
