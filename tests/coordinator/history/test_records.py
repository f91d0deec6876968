"""The bytes of `__gregor_rebalances`."""

import struct

import pytest

from gregor.coordinator.history.records import KEPT, Slot, decode, encode, tombstone_keys
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import RebalanceValue


def value(epoch: int) -> RebalanceValue:
    return RebalanceValue(group_type="classic", epoch=epoch, outcome="assigned", protocol=None)


def test_record_is_decoded_as_it_was_encoded() -> None:
    key, data = encode("billing", value(3))
    assert key == b"\x00\x00\x00\x07billing\x00\x03"
    slot = decode(key, data)
    assert slot is not None
    assert slot.value is not None
    assert (slot.group_id, slot.slot, slot.value.epoch, slot.value.outcome) == ("billing", 3, 3, "assigned")


def test_keys_repeat_after_the_number_that_is_kept() -> None:
    assert encode("g", value(5))[0] == encode("g", value(5 + KEPT))[0]
    assert len({encode("g", value(epoch))[0] for epoch in range(1, 2000)}) == KEPT


@pytest.mark.parametrize("epoch", [1, 5, KEPT - 1, KEPT, 3 * KEPT + 7])
def test_tombstones_are_for_all_keys_that_were_written(epoch: int) -> None:
    written = {encode("g", value(number))[0] for number in range(1, epoch + 1)}
    removed = list(tombstone_keys("g", epoch))
    assert written <= set(removed)
    assert len(removed) <= KEPT
    assert all(decode(key, None) == Slot("g", number, None) for number, key in enumerate(removed))


def test_newer_value_is_read_as_far_as_it_is_known() -> None:
    key, data = encode("g", value(1))
    slot = decode(key, struct.pack(">h", 5) + data[2:])
    assert slot is not None
    assert slot.value is not None
    assert slot.value.epoch == 1


def test_records_of_another_kind_are_passed_over_and_broken_ones_refused() -> None:
    key, data = encode("g", value(1))
    assert decode(b"\x00\x01" + key[2:], data) is None
    for broken_key, broken_value in ((None, data), (b"\x00", data), (key[:5], data), (key, b"\x00"), (key, data[:9])):
        with pytest.raises(MalformedMessage):
            decode(broken_key, broken_value)
    with pytest.raises(MalformedMessage):
        decode(key, b"\xff\xff" + data[2:])
