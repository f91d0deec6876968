"""The rates of clients, as their limits change."""

from __future__ import annotations

import pytest

from gregor.broker.quotas import quotas as quotas_module
from gregor.broker.quotas.quotas import Quotas, QuotaSettings
from gregor.replication.entities.quotas import DEFAULT, QuotaEntity
from tests.replication.fakes import HandClock

ALICE, BOB = QuotaEntity("alice"), QuotaEntity("bob")
MS_NS = 1_000_000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def quotas(clock: HandClock) -> Quotas:
    return Quotas(QuotaSettings(), clock)


def test_without_limits_nothing_is_measured(quotas: Quotas) -> None:
    assert quotas.is_empty
    meters = quotas.meters_of("alice", "app")
    assert (meters.produce, meters.fetch, meters.time, meters.changes) == (None, None, None, None)
    assert meters.produced(10**9, 10**9, 0) == meters.fetched(10**9, 10**9, 0) == meters.worked(10**9, 0) == 0


def test_connections_of_a_user_share_its_rate(quotas: Quotas, clock: HandClock) -> None:
    quotas.update({ALICE: {"producer_byte_rate": 1000}})
    now_ms = clock()
    assert quotas.meters_of("alice", "one").produced(10_000, 0, now_ms) == 0
    assert quotas.meters_of("alice", "two").produced(1_000, 0, now_ms) == 1000
    assert quotas.meters_of("bob", "one").produced(10**6, 0, now_ms) == 0


def test_each_client_id_of_a_user_has_a_rate_of_its_own_where_the_quota_is_of_client_ids(
    quotas: Quotas, clock: HandClock
) -> None:
    quotas.update({QuotaEntity("alice", DEFAULT): {"producer_byte_rate": 1000}})
    assert quotas.meters_of("alice", "one").produced(10_000, 0, clock()) == 0
    assert quotas.meters_of("alice", "two").produced(10_000, 0, clock()) == 0
    assert quotas.meters_of("alice", "two").produced(1_000, 0, clock()) == 1000


def test_a_changed_limit_keeps_what_was_measured(quotas: Quotas, clock: HandClock) -> None:
    quotas.update({ALICE: {"producer_byte_rate": 1000}})
    before = quotas.meters_of("alice", "app")
    before.produced(10_000, 0, clock())
    quotas.update({ALICE: {"producer_byte_rate": 500}})
    assert before.generation != quotas.generation
    assert quotas.meters_of("alice", "app").produced(0, 0, clock()) == 10_000
    quotas.update({})
    assert quotas.is_empty
    assert quotas.meters_of("alice", "app").produce is None


def test_the_longest_of_two_throttle_times_counts(quotas: Quotas, clock: HandClock) -> None:
    quotas.update({ALICE: {"producer_byte_rate": 1000, "request_percentage": 10.0}})
    meters = quotas.meters_of("alice", "app")
    # 1.1 s of work are 110 percent over a second, 11 percent over ten.
    assert meters.produced(10_000, 1_100 * MS_NS, clock()) == 1000
    assert meters.produced(5_000, 0, clock()) == 5000


def test_the_throttle_time_of_work_is_at_most_a_window(quotas: Quotas, clock: HandClock) -> None:
    quotas.update({ALICE: {"request_percentage": 1.0}})
    assert quotas.measures_time
    assert quotas.meters_of("alice", "app").worked(10_000 * MS_NS, clock()) == 1000


def test_bytes_of_a_throttled_fetch_do_not_count(quotas: Quotas, clock: HandClock) -> None:
    quotas.update({ALICE: {"consumer_byte_rate": 1000}})
    meters = quotas.meters_of("alice", "app")
    assert meters.fetched(9_000, 0, clock()) == 0
    assert meters.fetched(2_000, 0, clock()) == 1000
    assert meters.fetched(1_000, 0, clock()) == 0


def test_a_batch_that_exceeds_all_windows_is_sent_after_an_idle_time(quotas: Quotas, clock: HandClock) -> None:
    quotas.update({ALICE: {"consumer_byte_rate": 1000}})
    meters = quotas.meters_of("alice", "app")
    assert meters.fetched(1_000, 0, clock()) == 0
    assert meters.fetched(20_000, 0, clock()) == 11_000
    clock.sleep(11_000)
    assert meters.fetched(20_000, 0, clock()) == 0
    assert meters.fetched(20_000, 0, clock()) == 30_000


def test_the_old_defaults_are_those_of_client_ids(clock: HandClock) -> None:
    quotas = Quotas(QuotaSettings(producer_default=1000, consumer_default=2000), clock)
    assert not quotas.is_empty
    meters = quotas.meters_of("alice", "app")
    assert meters.produce is not None and meters.produce.bound == 1000
    assert meters.fetch is not None and meters.fetch.bound == 2000
    quotas.update({QuotaEntity(client_id=DEFAULT): {"producer_byte_rate": 5}})
    meters = quotas.meters_of("alice", "app")
    assert meters.produce is not None and meters.produce.bound == 5
    assert meters.fetch is not None and meters.fetch.bound == 2000


def test_rates_of_clients_that_have_left_are_removed(
    quotas: Quotas, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "MIN_RATES_TO_SWEEP", 4)
    quotas = Quotas(QuotaSettings(), clock)
    quotas.update({QuotaEntity(client_id=DEFAULT): {"producer_byte_rate": 1000}})
    for index in range(20):
        quotas.meters_of("alice", f"client-{index}").produced(100, 0, clock())
        clock.now_ms += 5_000
    assert quotas.rates_count <= 8


def test_a_client_that_stays_keeps_its_rate(quotas: Quotas, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "MIN_RATES_TO_SWEEP", 4)
    quotas = Quotas(QuotaSettings(), clock)
    quotas.update({QuotaEntity(client_id=DEFAULT): {"producer_byte_rate": 1000}})
    quotas.meters_of("alice", "stays").produced(10_000, 0, clock())
    for index in range(20):
        quotas.meters_of("alice", f"client-{index}").produced(100, 0, clock())
    assert quotas.meters_of("alice", "stays").produced(1_000, 0, clock()) == 1000


def test_new_connections_of_an_address(quotas: Quotas, clock: HandClock) -> None:
    quotas.update({QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 2}})
    assert not quotas.is_empty
    now_ms = clock()
    held = [quotas.connections.throttle_ms("10.0.0.1", now_ms) for _ in range(25)]
    # Twenty in the ten windows before; a refused one does not count, and waits half a second.
    assert held == [0] * 20 + [500] * 5
    assert quotas.connections.throttle_ms("10.0.0.2", now_ms) == 0
    quotas.update(
        {
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 2},
            QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 1},
        }
    )
    assert [quotas.connections.throttle_ms("10.0.0.2", now_ms) for _ in range(11)] == [0] * 10 + [1000]
