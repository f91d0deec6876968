"""gregor.storage.cleaner.offset_map beside a dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap


@given(st.lists(st.binary(max_size=3), max_size=200))
def test_it_knows_the_last_offset_of_each_key(keys: list[bytes]) -> None:
    latest = OffsetMap(1 << 20, 0.9, len(keys))
    expected: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        assert not latest.full
        latest.put(key, offset)
        expected[key] = offset
        assert latest.entries == len(expected)
    for key in {*keys, b"another", b""}:
        assert latest.get(key) == expected.get(key, -1)


def test_it_is_full_at_the_load_factor() -> None:
    latest = OffsetMap(100 * SLOT_BYTES, 0.9, 10**9)
    assert latest.slots == 97  # the largest prime
    count = 0
    while not latest.full:
        latest.put(b"%d" % count, count)
        count += 1
    assert count == int(97 * 0.9)
    assert [latest.get(b"%d" % number) for number in range(count)] == list(range(count))
    assert latest.get(b"other") == -1


@pytest.mark.parametrize("max_keys", [0, 1, 2, 3, 10, 1000])
def test_a_small_log_takes_little_memory_and_fits(max_keys: int) -> None:
    latest = OffsetMap(128 << 20, 0.9, max_keys)
    assert latest.slots <= max_keys * 2 + 12
    for number in range(max_keys):
        assert not latest.full
        latest.put(b"%d" % number, number)


@pytest.mark.parametrize(("memory_bytes", "load_factor"), [(0, 0.9), (SLOT_BYTES, 0.9), (3 * SLOT_BYTES, 0.0)])
def test_too_little_memory_is_refused(memory_bytes: int, load_factor: float) -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(memory_bytes, load_factor, 10)


def test_it_never_fills_its_last_slot() -> None:
    """A search ends at an empty slot."""
    latest = OffsetMap(5 * SLOT_BYTES, 1.0, 100)
    number = 0
    while not latest.full:
        latest.put(b"%d" % number, number)
        number += 1
    assert number == 4
    assert latest.get(b"other") == -1
