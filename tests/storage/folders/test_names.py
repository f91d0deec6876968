"""Folder names to partitions and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.storage.folders.names import FolderKind, PartitionFolder, folder_name, marked_folder_name, parse_folder_name

ID = bytes(range(16))
TOPICS = st.text("abXY019._-", min_size=1, max_size=249).filter(lambda topic: topic not in (".", ".."))
PARTITIONS = st.integers(0, 2**31 - 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", PartitionFolder("orders", 0, FolderKind.CURRENT)),
        ("my.topic-with_all-12", PartitionFolder("my.topic-with_all", 12, FolderKind.CURRENT)),
        ("__consumer_offsets-49", PartitionFolder("__consumer_offsets", 49, FolderKind.CURRENT)),
        ("undo-delete-0", PartitionFolder("undo-delete", 0, FolderKind.CURRENT)),
        ("--0", PartitionFolder("-", 0, FolderKind.CURRENT)),
        ("orders-0.0123abcd-delete", PartitionFolder("orders", 0, FolderKind.DELETE)),
        ("a.b-3.0123abcd-stray", PartitionFolder("a.b", 3, FolderKind.STRAY)),
        ("a-3.0123abcd-future", PartitionFolder("a", 3, FolderKind.FUTURE)),
    ],
)
def test_names_kafka_gives(name: str, expected: PartitionFolder) -> None:
    assert parse_folder_name(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "lost+found",
        "orders",
        "orders-",
        "-0",
        "orders-x",
        "orders-00",
        "orders--1x",
        "orders-2147483648",
        "orders-delete",
        "orders-0-delete",
        "orders-0.-delete",
        "orders.0123abcd-delete",
        "or ders-0",
        "..-0",
        "remote-log-index-cache",
        "orders-٣",
        "x" * 250 + "-0",
    ],
)
def test_names_of_something_else(name: str) -> None:
    assert parse_folder_name(name) is None


@settings(max_examples=60, deadline=None)
@given(TOPICS, PARTITIONS)
def test_round_trip(topic: str, partition: int) -> None:
    assert parse_folder_name(folder_name(topic, partition)) == (topic, partition, FolderKind.CURRENT)


@settings(max_examples=60, deadline=None)
@given(TOPICS, PARTITIONS, st.sampled_from([FolderKind.DELETE, FolderKind.STRAY]), st.binary(min_size=16, max_size=16))
def test_marked_names_fit_the_file_system(topic: str, partition: int, kind: FolderKind, unique: bytes) -> None:
    name = marked_folder_name(topic, partition, kind, unique)
    assert len(name) <= 255
    parsed = parse_folder_name(name)
    assert parsed is not None
    assert (parsed.partition, parsed.kind) == (partition, kind)
    assert topic.startswith(parsed.topic)
    assert parsed.topic == topic or len(name) == 255


def test_marked_name_is_kafkas() -> None:
    name = marked_folder_name("orders", 7, FolderKind.DELETE, ID)
    assert name == "orders-7.000102030405060708090a0b0c0d0e0f-delete"


def test_a_future_name_keeps_its_topic() -> None:
    assert marked_folder_name("t" * 249, 0, FolderKind.FUTURE, ID).startswith("t" * 249 + "-0.")


@settings(max_examples=150, deadline=None)
@given(st.text("ab-.0129 \ndeltsryfu", max_size=30))
def test_fuzz_a_parsed_name_is_the_partitions_name(name: str) -> None:
    parsed = parse_folder_name(name)
    if parsed is not None:
        base = folder_name(parsed.topic, parsed.partition)
        assert name == base if parsed.kind is FolderKind.CURRENT else name.startswith(base + ".")
