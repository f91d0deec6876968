"""Records of `__consumer_offsets` against bytes that Apache Kafka 4.3.1's own classes wrote."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.group.records import decode_record, encode_record, java_length
from gregor.coordinator.result import Record
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

TIME_MS = 1_700_000_000_123
OFFSET = 1_234_567_890_123

OFFSET_KEY = OffsetCommitKey(group="my-group", topic="topic-é", partition=7)
OFFSET_KEY_BYTES = bytes.fromhex("000100086d792d67726f75700008746f7069632dc3a900000007")
GROUP_KEY = GroupMetadataKey(group="my-group")
GROUP_KEY_BYTES = bytes.fromhex("000200086d792d67726f7570")


def group_value(static: bool = True, rebalance: bool = True, timestamp: bool = True) -> GroupMetadataValue:
    member = GroupMetadataValue.MemberMetadata
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="a-1",
        current_state_timestamp=TIME_MS if timestamp else -1,
        members=[
            member(
                member_id="a-1",
                client_id="a",
                client_host="/127.0.0.1",
                rebalance_timeout=60000 if rebalance else -1,
                session_timeout=10000,
                subscription=b"\1\2\3",
                assignment=b"\4\5",
            ),
            member(
                member_id="b-2",
                group_instance_id="b" if static else None,
                client_id="bc",
                client_host="/::1",
                rebalance_timeout=300000 if rebalance else -1,
                session_timeout=45000,
            ),
        ],
    )


def empty_value(generation: int, protocol_type: str) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=None,
        leader=None,
        current_state_timestamp=TIME_MS,
        members=[],
    )


WRITTEN = [
    pytest.param(
        OffsetCommitValue(offset=OFFSET, leader_epoch=42, metadata="note", commit_timestamp=TIME_MS),
        "00030000011f71fb04cb0000002a00046e6f74650000018bcfe5687b",
        id="offset",
    ),
    pytest.param(
        OffsetCommitValue(offset=OFFSET, metadata="note", commit_timestamp=TIME_MS, expire_timestamp=TIME_MS + 60_000),
        "00010000011f71fb04cb00046e6f74650000018bcfe5687b0000018bcfe652db",
        id="offset that expires",
    ),
    pytest.param(
        empty_value(0, ""), "0003000000000000ffffffff0000018bcfe5687b00000000", id="group that was just created"
    ),
    pytest.param(
        empty_value(5, "consumer"),
        "00030008636f6e73756d657200000005ffffffff0000018bcfe5687b00000000",
        id="group whose members left",
    ),
    pytest.param(
        group_value(),
        "00030008636f6e73756d657200000004000572616e67650003612d310000018bcfe5687b000000020003612d31ffff000161000a2f3132"
        "372e302e302e310000ea6000002710000000030102030000000204050003622d320001620002626300042f3a3a31000493e00000afc800"
        "00000000000000",
        id="group with members",
    ),
]


@pytest.mark.parametrize(("value", "written"), WRITTEN)
def test_values_are_written_as_apache_kafka_writes_them(
    value: OffsetCommitValue | GroupMetadataValue, written: str
) -> None:
    key = OFFSET_KEY if isinstance(value, OffsetCommitValue) else GROUP_KEY
    key_bytes = OFFSET_KEY_BYTES if key is OFFSET_KEY else GROUP_KEY_BYTES
    assert encode_record(Record(key, value)) == (key_bytes, bytes.fromhex(written))
    assert decode_record(key_bytes, bytes.fromhex(written)) == Record(key, value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param(
            OffsetCommitValue(offset=OFFSET, metadata="note", commit_timestamp=TIME_MS),
            "00000000011f71fb04cb00046e6f74650000018bcfe5687b",
            id="offset v0",
        ),
        pytest.param(
            OffsetCommitValue(offset=OFFSET, leader_epoch=42, metadata="note", commit_timestamp=TIME_MS),
            "00040000011f71fb04cb0000002a056e6f74650000018bcfe5687b00",
            id="offset v4",
        ),
        pytest.param(
            OffsetCommitValue(offset=OFFSET, leader_epoch=42, metadata="note", commit_timestamp=TIME_MS),
            "00090000011f71fb04cb0000002a056e6f74650000018bcfe5687b01050178",
            id="offset v9 with a tag nobody knows yet",
        ),
        pytest.param(
            group_value(static=False, rebalance=False, timestamp=False),
            "00000008636f6e73756d657200000004000572616e67650003612d31000000020003612d31000161000a2f3132372e302e302e3100"
            "002710000000030102030000000204050003622d320002626300042f3a3a310000afc80000000000000000",
            id="group v0",
        ),
        pytest.param(
            group_value(static=False, timestamp=False),
            "00010008636f6e73756d657200000004000572616e67650003612d31000000020003612d31000161000a2f3132372e302e302e3100"
            "00ea6000002710000000030102030000000204050003622d320002626300042f3a3a31000493e00000afc80000000000000000",
            id="group v1",
        ),
        pytest.param(
            group_value(static=False),
            "00020008636f6e73756d657200000004000572616e67650003612d310000018bcfe5687b000000020003612d31000161000a2f3132"
            "372e302e302e310000ea6000002710000000030102030000000204050003622d320002626300042f3a3a31000493e00000afc80000"
            "000000000000",
            id="group v2",
        ),
        pytest.param(
            group_value(),
            "000409636f6e73756d6572000000040672616e676504612d310000018bcfe5687b0304612d310002610b2f3132372e302e302e3100"
            "00ea6000002710040102030304050004622d320262036263052f3a3a31000493e00000afc801010000",
            id="group v4",
        ),
    ],
)
def test_values_of_all_ages_are_read(value: OffsetCommitValue | GroupMetadataValue, written: str) -> None:
    key_bytes = OFFSET_KEY_BYTES if isinstance(value, OffsetCommitValue) else GROUP_KEY_BYTES
    decoded = decode_record(key_bytes, bytes.fromhex(written))
    assert decoded is not None
    assert decoded.value == value


def test_no_value_is_a_tombstone() -> None:
    assert encode_record(Record(OFFSET_KEY, None)) == (OFFSET_KEY_BYTES, None)
    assert decode_record(GROUP_KEY_BYTES, None) == Record(GROUP_KEY, None)


def test_the_first_key_version_is_read() -> None:
    assert decode_record(b"\0\0" + OFFSET_KEY_BYTES[2:], None) == Record(OFFSET_KEY, None)


def test_records_of_share_and_streams_groups_are_passed_over() -> None:
    assert decode_record(b"\0\x09\0\1g", b"\0\0anything") is None
    assert decode_record(b"\x7f\xff", None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"", None),
        (b"\0", None),
        (OFFSET_KEY_BYTES[:-1], None),
        (OFFSET_KEY_BYTES, b""),
        (OFFSET_KEY_BYTES, b"\0"),
        (OFFSET_KEY_BYTES, b"\xff\xff" + bytes(40)),
        (GROUP_KEY_BYTES, b"\0\3\0\1x"),
    ],
)
def test_damage_is_malformed(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, value)


def test_a_name_that_is_too_long_for_the_format_is_refused() -> None:
    with pytest.raises(ValueError, match="OffsetCommitKey"):
        encode_record(Record(OffsetCommitKey(group="g" * 40_000, topic="t", partition=0), None))


@settings(max_examples=60)
@given(
    st.sampled_from([OFFSET_KEY_BYTES[:2], GROUP_KEY_BYTES[:2], b""]), st.binary(max_size=40), st.binary(max_size=60)
)
def test_any_bytes_decode_or_are_malformed(prefix: bytes, key: bytes, value: bytes) -> None:
    try:
        decoded = decode_record(prefix + key, value)
    except MalformedMessage:
        return
    assert decoded is None or isinstance(decoded.key, OffsetCommitKey | GroupMetadataKey)


@pytest.mark.parametrize(
    ("text", "length"),
    # From String.length of a JVM.
    [("", 0), ("g", 1), ("my-group", 8), ("console-consumer-51234", 22), ("grüße", 5), ("\U0001f600-group", 8)],
)
def test_strings_count_as_in_java(text: str, length: int) -> None:
    assert java_length(text) == length
