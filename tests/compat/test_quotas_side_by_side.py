"""Two users with different quotas who write at the same time, on gregor and on Apache Kafka 4.3.1, on one time line.

The bounds come from the windows of the quota: Apache Kafka measures a rate over samples of one second, and keeps one
sample more than there are windows. So at any time, what a user has written differs from what its
rate admits by the bytes of all samples at most. The same holds for the difference between the two brokers. Idle time
that is longer than the samples is never made up for: what a user could not write because others had the processors is
not demanded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gregor.protocol.client import version_ranges
from gregor.protocol.client_security import security_of_client
from gregor.protocol.messages import (
    AlterClientQuotasRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    ProduceRequest,
)
from gregor.protocol.records.batch import build_batch
from gregor.protocol.sync_client import SyncConnection
from tests.compat.records import WAIT_S, until
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.processes import BrokerProcess, free_port
from tests.support.secured_broker import login
from tests.support.stolen_time import waited_of_process_s, waited_s
from tests.support.wire import TIMEOUT_S, RawConnection, request_bytes

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

WINDOWS = 2
SAMPLES = WINDOWS + 1
SECONDS = 12
TOPIC = "quotas"
VERSION = 9
RATES = {"anna": 200_000, "bob": 50_000}
"""Bytes per second."""
PROBE = "probe"
"""A user whose first request is throttled as soon as the quotas act: all of them are set by one request."""
USERS = {name: f"secret-of-{name}" for name in ("broker", PROBE, *RATES)}
VALUE_BYTES = 5_000
SETTINGS = {
    "quota.window.num": str(WINDOWS),
    "quota.window.size.seconds": "1",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": login(
        "plain.PlainLoginModule", username="broker", **{f"user_{name}": secret for name, secret in USERS.items()}
    ),
}


class Broker(NamedTuple):
    sasl_port: int
    pid: int


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Both brokers, with the topic and the quotas."""
    folder = tmp_path_factory.mktemp("kafka")
    port, controller, sasl, our_sasl = (free_port() for _ in range(4))
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    protocols = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    given = {"listeners": listeners, "listener.security.protocol.map": protocols, **SETTINGS}
    file = folder / "kafka.properties"
    text = SINGLE_NODE.format(port=port, controller=controller, folder=folder)
    file.write_text(text + "".join(f"{key}={value}\n" for key, value in given.items()))
    gregor = BrokerProcess(tmp_path_factory.mktemp("gregor"), SETTINGS)
    gregor.overrides["listeners"] += f",SASL_PLAINTEXT://127.0.0.1:{our_sasl}"
    with KafkaPeer(file, port) as kafka, gregor:
        for plain, secured in ((gregor.port, our_sasl), (port, sasl)):
            prepare(plain, secured)
        yield {"gregor": Broker(our_sasl, gregor.pid), "kafka": Broker(sasl, kafka.pid)}


def produce_request() -> ProduceRequest:
    records = bytes(build_batch([(None, b"v" * VALUE_BYTES)], timestamp_ms=time.time_ns() // 1_000_000))
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)


def produce(connection: SyncConnection) -> tuple[int, int]:
    """Return the error code and the throttle time."""
    answer = connection.exchange(produce_request(), VERSION)
    return answer.responses[0].partition_responses[0].error_code, answer.throttle_time_ms


def connect(sasl_port: int, user: str) -> SyncConnection:
    """Return a connection that is authenticated."""
    entry = login("plain.PlainLoginModule", username=user, password=USERS[user])
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": entry}
    connection = SyncConnection("127.0.0.1", sasl_port, user, TIMEOUT_S, TIMEOUT_S, security_of_client(settings))
    connection.log_in(version_ranges(connection.exchange(ApiVersionsRequest(), 0)))
    return connection


def prepare(port: int, sasl_port: int) -> None:
    """Make the topic, and set the quotas until they act."""
    quotas = AlterClientQuotasRequest
    entries = [
        quotas.EntryData(
            entity=[quotas.EntityData(entity_type="user", entity_name=user)],
            ops=[quotas.OpData(key="producer_byte_rate", value=float(rate), remove=False)],
        )
        for user, rate in {**RATES, PROBE: 1}.items()
    ]
    with RawConnection(port) as wire:
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        (made,) = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics
        assert made.error_code == 0
        until(lambda: produce(wire)[0] == 0, "the topic has a leader", WAIT_S)
        altered = wire.ask(quotas(entries=entries, validate_only=False), 1).entries
        assert {entry.error_code for entry in altered} == {0}

    def acts() -> bool:
        with connect(sasl_port, PROBE) as probe:
            return produce(probe)[1] > 0

    until(acts, "the quotas act", WAIT_S)


class Line:
    """One user at one broker, who always has something to write: the times and sizes of what was acknowledged."""

    def __init__(self, broker: Broker, user: str, begin: threading.Barrier) -> None:
        self._connection = connect(broker.sasl_port, user)
        self._pid = broker.pid
        self._begin = begin
        self._written: list[tuple[float, int]] = []
        self._late: list[tuple[float, float]] = []
        """For each response, when its request was sent, and by how much it came later than the throttle time before it
        announced, as far as this thread or the broker waited for a processor meanwhile."""
        self.throttled = 0
        self.errors: set[int] = set()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        size_bytes = len(request_bytes(produce_request(), VERSION, 0, "user")) - 4
        with self._connection as connection:
            self._begin.wait(WAIT_S)
            begun_s = time.monotonic()
            now_s = throttled_s = 0.0
            waiting_s = self._waiting_s()
            while now_s < SECONDS:
                sent_s = now_s
                error, throttle_ms = produce(connection)
                now_s = time.monotonic() - begun_s
                waited_before_s, waiting_s = waiting_s, self._waiting_s()
                late_s = min(now_s - sent_s - throttled_s, waiting_s - waited_before_s)
                self._late.append((sent_s, max(0.0, late_s)))
                throttled_s = throttle_ms / 1000
                self.errors.add(error)
                self.throttled += throttle_ms > 0
                self._written.append((now_s, size_bytes))

    def until_second(self, second: int) -> int:
        """Return the bytes that were acknowledged until then."""
        return sum(size_bytes for at_s, size_bytes in self._written if at_s <= second)

    def late_until(self, second: int) -> float:
        """Return by how many seconds the responses until then were late, in sum."""
        return sum(late_s for sent_s, late_s in self._late if sent_s <= second)

    def _waiting_s(self) -> float:
        return waited_s() + waited_of_process_s(self._pid)


def test_two_users_are_held_to_their_quotas_beside_each_other(brokers: dict[str, Broker]) -> None:
    begin = threading.Barrier(len(brokers) * len(RATES))
    lines = {(name, user): Line(broker, user, begin) for name, broker in brokers.items() for user in RATES}
    for line in lines.values():
        line.thread.join()
    report = {case: [line.until_second(second) for second in range(1, SECONDS + 1)] for case, line in lines.items()}
    for user, rate in RATES.items():
        all_samples = rate * SAMPLES
        for second in range(1, SECONDS + 1):
            both = [lines[name, user] for name in ("gregor", "kafka")]
            ours, theirs = (line.until_second(second) for line in both)
            late = [line.late_until(second) for line in both]
            for written, late_s in zip((ours, theirs), late, strict=True):
                assert written <= rate * second + all_samples, (user, second, report)
                assert written >= rate * (second - late_s) - all_samples, (user, second, late_s, report)
            assert abs(ours - theirs) <= all_samples + rate * max(late), (user, second, late, report)
    for case, line in lines.items():
        assert line.errors == {0} and line.throttled, case
