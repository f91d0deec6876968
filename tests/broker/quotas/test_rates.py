"""Measured rates and throttle times, beside those of Apache Kafka's own classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.broker.quotas.rates import TokenBucket, WindowedRate

START_MS = 1_000_000
BOUND = 1000

# Measured by org.apache.kafka.common.metrics.stats.Rate of 4.3.1 with a bound of 1000: milliseconds since the record
# before, recorded value, throttle time by QuotaUtils.throttleTime.
ELEVEN_WINDOWS = [
    (150, 6750, 0),
    (255, 4555, 1050),
    (0, 493, 1543),
    (2260, 2260, 3543),
    (348, 48, 3243),
    (647, 347, 3943),
    (613, 313, 4643),
    (7106, 506, 4043),
    (6677, 77, 0),
    (0, 49, 0),
    (269, 269, 0),
    (656, 556, 0),
    (319, 519, 0),
    (0, 514, 0),
    (0, 1205, 0),
    (391, 591, 0),
    (0, 468, 0),
    (178, 178, 0),
    (0, 317, 0),
    (0, 207, 0),
    (13, 13, 0),
    (4997, 197, 0),
    (472, 472, 0),
    (564, 464, 0),
    (585, 7185, 2837),
    (4295, 4295, 5130),
    (475, 6275, 8497),
    (3549, 549, 8497),
    (454, 354, 9397),
    (87, 387, 9697),
    (465, 3865, 13097),
    (587, 387, 13264),
    (353, 453, 13364),
    (578, 478, 13264),
    (2376, 576, 6695),
    (90, 1590, 9195),
    (250, 1550, 10495),
    (599, 299, 10195),
    (418, 18, 10795),
    (129, 529, 11195),
    (15000, 49, 0),
    (0, 6440, 0),
    (600, 2100, 0),
    (346, 146, 0),
    (0, 481, 0),
    (0, 215, 0),
    (614, 114, 0),
    (0, 19, 0),
    (4187, 587, 0),
    (213, 13, 0),
    (0, 63, 0),
    (4513, 313, 67),
    (8459, 59, 0),
    (565, 5965, 0),
    (0, 393, 0),
    (0, 1975, 0),
    (549, 549, 0),
    (0, 133, 0),
    (698, 298, 0),
    (502, 402, 0),
]
THREE_WINDOWS_OF_2_S = [
    (348, 348, 0),
    (150, 5950, 2148),
    (82, 282, 2348),
    (676, 276, 1948),
    (0, 81, 2029),
    (143, 243, 2129),
    (136, 236, 2229),
    (0, 241, 2470),
    (0, 132, 2602),
    (3200, 3200, 6602),
    (304, 4, 6302),
    (544, 44, 5802),
    (578, 578, 5802),
    (89, 89, 5802),
    (640, 7940, 13102),
    (3738, 138, 6100),
    (0, 111, 6211),
    (4713, 513, 0),
    (0, 72, 0),
    (60, 2460, 0),
    (0, 407, 0),
    (1413, 213, 0),
    (10, 5710, 3892),
    (109, 9, 3792),
    (321, 221, 3692),
    (6329, 329, 0),
    (68, 168, 0),
    (0, 171, 0),
    (126, 126, 0),
    (641, 441, 0),
    (591, 291, 0),
    (0, 7080, 3180),
    (118, 318, 3380),
    (437, 337, 3280),
    (27, 27, 5280),
    (629, 129, 4780),
    (6825, 6825, 2825),
    (524, 524, 2825),
    (488, 188, 2525),
    (613, 13, 1925),
    (15000, 499, 0),
    (0, 4095, 594),
    (661, 561, 494),
    (0, 214, 708),
    (579, 479, 608),
    (3381, 381, 1608),
    (0, 487, 2095),
    (8929, 529, 0),
    (66, 66, 0),
    (384, 84, 0),
    (6642, 42, 0),
    (178, 378, 0),
    (299, 399, 0),
    (6526, 526, 0),
    (377, 77, 0),
    (0, 29, 0),
    (0, 92, 0),
    (1512, 312, 0),
    (1054, 454, 0),
    (3749, 149, 0),
]
ONE_WINDOW = [
    (354, 554, 553),
    (552, 152, 154),
    (4270, 4270, 4269),
    (4291, 91, 90),
    (213, 113, 0),
    (531, 131, 0),
    (0, 159, 0),
    (0, 576, 326),
    (487, 187, 26),
    (550, 3350, 2987),
    (530, 7530, 9987),
    (241, 141, 9887),
    (137, 37, 9787),
    (6863, 263, 262),
    (6282, 282, 281),
    (276, 276, 282),
    (655, 5155, 4782),
    (648, 248, 4382),
    (528, 428, 148),
    (206, 506, 448),
    (608, 208, 48),
    (138, 238, 148),
    (248, 148, 48),
    (354, 154, 8),
    (250, 5250, 5008),
    (256, 556, 5308),
    (362, 62, 5008),
    (94, 394, 5308),
    (307, 507, 756),
    (495, 4695, 4956),
    (17, 317, 5256),
    (172, 572, 5656),
    (0, 183, 5839),
    (0, 795, 6634),
    (0, 86, 6720),
    (5269, 469, 468),
    (608, 108, 0),
    (6148, 148, 147),
    (557, 357, 0),
    (397, 97, 0),
    (15000, 1540, 1539),
    (558, 558, 1540),
    (0, 222, 1762),
    (2083, 283, 282),
    (0, 476, 758),
    (6548, 548, 547),
    (160, 6260, 6648),
    (648, 448, 6448),
    (544, 144, 6048),
    (0, 3755, 9803),
    (320, 20, 9503),
    (444, 444, 3599),
    (531, 131, 3199),
    (0, 487, 3686),
    (662, 362, 318),
    (0, 483, 801),
    (334, 234, 701),
    (691, 491, 501),
    (0, 4810, 5311),
    (0, 496, 5807),
]
# The same of org.apache.kafka.common.metrics.stats.TokenBucket, 2 a second in 11 windows; its throttle time is that
# before the changes are recorded.
BUCKET = [
    (969, 5, 0),
    (0, 3, 0),
    (2288, 4, 0),
    (2193, 5, 0),
    (580, 8, 0),
    (1572, 8, 0),
    (0, 0, 0),
    (0, 0, 0),
    (0, 6, 0),
    (0, 9, 1867),
    (0, 0, 6367),
    (450, 2, 5917),
    (0, 3, 6917),
    (1345, 1, 7072),
    (1900, 8, 5672),
    (0, 0, 9672),
    (1475, 11, 8197),
    (625, 5, 13072),
    (0, 6, 15572),
    (2305, 5, 16267),
]


@pytest.mark.parametrize(
    ("samples", "window_ms", "records"),
    [(11, 1000, ELEVEN_WINDOWS), (3, 2000, THREE_WINDOWS_OF_2_S), (1, 1000, ONE_WINDOW)],
    ids=["defaults", "three", "one"],
)
def test_throttle_times_are_those_of_apache_kafka(
    samples: int, window_ms: int, records: list[tuple[int, int, int]]
) -> None:
    now_ms = START_MS + records[0][0]
    rate = WindowedRate(BOUND, samples, window_ms, now_ms)
    found = [rate.record(records[0][1], now_ms)]
    for elapsed_ms, value, _ in records[1:]:
        now_ms += elapsed_ms
        found.append(rate.record(value, now_ms))
    assert found == [throttle_ms for _, _, throttle_ms in records]


def test_a_bucket_is_as_full_as_that_of_apache_kafka() -> None:
    bucket = TokenBucket(2.0, 11, 1000)
    now_ms = START_MS
    found = []
    for elapsed_ms, changes, _ in BUCKET:
        now_ms += elapsed_ms
        found.append(bucket.throttle_ms(now_ms))
        bucket.record(changes, now_ms)
    assert found == [throttle_ms for _, _, throttle_ms in BUCKET]


class SlowRate:
    """The same arithmetic without any shortcut: every sample is visited at every record."""

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self.samples, self.window_ms = samples, window_ms
        self.kept = [[0.0, now_ms, now_ms]]
        self.current = 0

    def record(self, value: float, now_ms: int) -> int:
        if now_ms - self.kept[self.current][1] >= self.window_ms:
            self.current = (self.current + 1) % (self.samples + 1)
            if self.current == len(self.kept):
                self.kept.append([0.0, now_ms, now_ms])
            self.kept[self.current] = [0.0, now_ms, now_ms]
        self.kept[self.current][0] += value
        self.kept[self.current][2] = now_ms
        for sample in self.kept:
            if now_ms - sample[2] >= self.samples * self.window_ms:
                sample[:] = [0.0, now_ms, now_ms]
        elapsed_ms = now_ms - min(int(start_ms) for _, start_ms, _ in self.kept)
        elapsed_ms += max(0, self.samples - 1 - elapsed_ms // self.window_ms) * self.window_ms
        total = sum(total for total, _, _ in self.kept)
        elapsed_ms = elapsed_ms or 1
        if total / (elapsed_ms / 1000) <= BOUND:
            return 0
        return int((total / (elapsed_ms / 1000) - BOUND) / BOUND * elapsed_ms + 0.5)


@given(
    samples=st.integers(1, 12),
    records=st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 30_000)), min_size=1, max_size=60),
)
def test_the_shortcuts_change_nothing(samples: int, records: list[tuple[int, int]]) -> None:
    now_ms = START_MS
    rate, slow = WindowedRate(BOUND, samples, 1000, now_ms), SlowRate(samples, 1000, now_ms)
    for elapsed_ms, value in records:
        now_ms += elapsed_ms
        assert rate.record(value, now_ms) == slow.record(value, now_ms)


@given(records=st.lists(st.tuples(st.integers(0, 3_000), st.floats(0, 3_000)), min_size=1, max_size=60))
def test_the_sum_of_fractions_is_that_of_every_record(records: list[tuple[int, float]]) -> None:
    now_ms = START_MS
    rate, slow = WindowedRate(BOUND, 11, 1000, now_ms), SlowRate(11, 1000, now_ms)
    for elapsed_ms, value in records:
        now_ms += elapsed_ms
        assert abs(rate.record(value, now_ms) - slow.record(value, now_ms)) <= 1
        assert rate.total == pytest.approx(sum(total for total, _, _ in slow.kept))


def test_a_lower_bound_acts_on_what_is_recorded_next() -> None:
    rate = WindowedRate(BOUND, 11, 1000, START_MS)
    assert rate.record(9_000, START_MS) == 0
    rate.limit_to(BOUND / 2)
    assert rate.record(0, START_MS) == 8_000
    rate.limit_to(BOUND)
    assert rate.record(0, START_MS) == 0


def test_a_client_that_waits_for_its_throttle_time_runs_at_the_bound() -> None:
    now_ms = START_MS
    rate = WindowedRate(BOUND, 11, 1000, now_ms)
    sent = 0
    while now_ms < START_MS + 300_000:
        throttle_ms = rate.record(700, now_ms)
        sent += 700
        now_ms += 1 + throttle_ms
    # The burst of the beginning, ten windows, is the only excess.
    assert 300 * BOUND <= sent <= 311 * BOUND + 700


def test_a_limit_of_the_throttle_time() -> None:
    rate = WindowedRate(1, 11, 1000, START_MS, max_throttle_ms=1000)
    assert rate.record(10_000, START_MS) == 1000


def test_what_is_unrecorded_does_not_count() -> None:
    rate = WindowedRate(BOUND, 11, 1000, START_MS)
    assert rate.record(50_000, START_MS) > 0
    rate.unrecord(50_000, START_MS)
    assert rate.record(10_000, START_MS) == 0
    assert rate.measure(START_MS) == BOUND


def test_a_rate_is_idle_when_all_windows_are_over() -> None:
    rate = WindowedRate(BOUND, 11, 1000, START_MS)
    rate.record(1, START_MS + 5)
    assert not rate.is_idle(START_MS + 5 + 10_999)
    assert rate.is_idle(START_MS + 5 + 11_000)


def test_a_clock_that_is_set_back_throttles_for_a_bounded_time() -> None:
    rate = WindowedRate(BOUND, 11, 1000, START_MS)
    rate.record(9_000, START_MS)
    assert 0 <= rate.record(9_000, START_MS - 3_600_000) <= 20_000
