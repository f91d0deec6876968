"""meta.properties and partition.metadata: formats, contradictions, fuzz."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.ids import ZERO_UUID, uuid_from_text
from gregor.storage.folders.checkpoints import MalformedFile
from gregor.storage.folders.identity import (
    InconsistentFolder,
    MetaProperties,
    agree_on_meta,
    format_meta_properties,
    format_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
)

# As Apache Kafka 3.9.1 leaves it in a data folder, in ZooKeeper mode.
KAFKA_META = b"#\n#Sat Nov 21 13:02:54 UTC 2026\nbroker.id=0\nversion=0\ncluster.id=XoSDzgrARomkabma0vbG8w\n"
TOPIC_ID = uuid_from_text("ST_DYboMSwu29fD6Z_eltQ")
TEXTS = st.text("ab1\\=:#! \té€\n\r\f", min_size=1, max_size=12)


class TestMetaProperties:
    def test_kafkas_own(self) -> None:
        meta = parse_meta_properties(KAFKA_META, "f")
        assert meta == MetaProperties(0, 0, "XoSDzgrARomkabma0vbG8w")

    def test_written_like_kafkas(self) -> None:
        meta = MetaProperties(0, 0, "XoSDzgrARomkabma0vbG8w")
        assert format_meta_properties(meta, 1795266174_000) == KAFKA_META

    def test_version_1_names_a_node(self) -> None:
        data = b"version=1\nnode.id=3\ncluster.id=abc\ndirectory.id=ST_DYboMSwu29fD6Z_eltQ\n"
        meta = parse_meta_properties(data, "f")
        assert meta == MetaProperties(1, 3, "abc", (("directory.id", "ST_DYboMSwu29fD6Z_eltQ"),))
        assert parse_meta_properties(format_meta_properties(meta, 0), "f") == meta

    @pytest.mark.parametrize("data", [b"", b"version=0\n", b"# nothing\n"])
    def test_version_0_may_know_nothing(self, data: bytes) -> None:
        assert parse_meta_properties(data, "f") == MetaProperties()

    @pytest.mark.parametrize(
        ("data", "named"),
        [
            (b"version=2\n", "'2'"),
            (b"version=\n", "''"),
            (b"broker.id=-1\n", "broker.id"),
            (b"broker.id=zero\n", "'zero'"),
            (b"version=1\nnode.id=1\n", "cluster.id"),
            (b"version=1\nbroker.id=1\ncluster.id=a\n", "node.id"),
            (b"cluster.id=\\u12\n", "\\u"),
            (b"\xff\xfe=1", "utf-8"),
        ],
    )
    def test_malformed_names_the_file(self, data: bytes, named: str) -> None:
        with pytest.raises(MalformedFile) as caught:
            parse_meta_properties(data, "/data/meta.properties")
        assert str(caught.value).startswith("/data/meta.properties: ")
        assert named in str(caught.value)

    @settings(max_examples=40, deadline=None)
    @given(
        st.integers(0, 1), st.integers(0, 2**31 - 1), TEXTS, st.dictionaries(TEXTS.map("x.".__add__), TEXTS, max_size=3)
    )
    def test_round_trip(self, version: int, broker_id: int, cluster_id: str, others: dict[str, str]) -> None:
        meta = MetaProperties(version, broker_id, cluster_id, tuple(others.items()))
        assert parse_meta_properties(format_meta_properties(meta, 0), "f") == meta

    @settings(max_examples=100, deadline=None)
    @given(st.one_of(st.binary(max_size=40), st.text("version=01node.idcluster\\u\n#", max_size=60).map(str.encode)))
    def test_fuzz_only_the_documented_error(self, data: bytes) -> None:
        try:
            meta = parse_meta_properties(data, "f")
        except MalformedFile:
            return
        assert parse_meta_properties(format_meta_properties(meta, 0), "f") == meta


class TestAgreement:
    def test_nobody_knows(self) -> None:
        assert agree_on_meta({"a": None, "b": MetaProperties()}, None, None) == (None, None)

    def test_folders_tell_what_the_caller_does_not_know(self) -> None:
        assert agree_on_meta({"a": None, "b": MetaProperties(0, 4, "c")}, None, None) == (4, "c")

    def test_the_caller_tells_new_folders(self) -> None:
        assert agree_on_meta({"a": None}, 4, "c") == (4, "c")

    def test_all_agree(self) -> None:
        assert agree_on_meta({"a": MetaProperties(0, 4, "c"), "b": MetaProperties(1, 4, "c")}, 4, "c") == (4, "c")

    def test_another_brokers_folder(self) -> None:
        with pytest.raises(InconsistentFolder, match=r"/d/meta.properties belongs to broker 1.*Set broker\.id=1"):
            agree_on_meta({"/d/meta.properties": MetaProperties(0, 1, "c")}, 2, "c")

    def test_another_clusters_folder(self) -> None:
        with pytest.raises(
            InconsistentFolder, match=r"belongs to cluster old, but the cluster id is new in the metadata store"
        ):
            agree_on_meta({"/d/meta.properties": MetaProperties(0, 1, "old")}, 1, "new")

    def test_folders_that_contradict_each_other(self) -> None:
        stored = {"/d1": MetaProperties(0, 1, "c"), "/d2": MetaProperties(0, 2, "c")}
        with pytest.raises(InconsistentFolder, match="/d2 belongs to broker 2, but the broker id is 1 in /d1"):
            agree_on_meta(stored, None, None)
        stored = {"/d1": MetaProperties(0, 1, "c"), "/d2": MetaProperties(0, 1, "e")}
        with pytest.raises(InconsistentFolder, match="/d2 belongs to cluster e, but the cluster id is c in /d1"):
            agree_on_meta(stored, None, None)


class TestPartitionMetadata:
    def test_layout_is_kafkas(self) -> None:
        data = b"version: 0\ntopic_id: ST_DYboMSwu29fD6Z_eltQ"
        assert format_partition_metadata(TOPIC_ID) == data
        assert parse_partition_metadata(data, "f") == TOPIC_ID

    def test_later_versions_are_read(self) -> None:
        assert parse_partition_metadata(b"version: 7\ntopic_id: ST_DYboMSwu29fD6Z_eltQ\nmore: x\n", "f") == TOPIC_ID

    @pytest.mark.parametrize(
        ("data", "line_number"),
        [
            (b"", None),
            (b"version: 0", None),
            (b"version: x\ntopic_id: ST_DYboMSwu29fD6Z_eltQ", 1),
            (b"version: -1\ntopic_id: ST_DYboMSwu29fD6Z_eltQ", 1),
            (b"0\ntopic_id: ST_DYboMSwu29fD6Z_eltQ", 1),
            (b"version: 0\ntopic_id: short", 2),
            (b"version: 0\ntopic: ST_DYboMSwu29fD6Z_eltQ", 2),
            (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
            (b"\0" * 40, None),
        ],
    )
    def test_malformed_names_file_and_line(self, data: bytes, line_number: int | None) -> None:
        with pytest.raises(MalformedFile) as caught:
            parse_partition_metadata(data, "/d/t-0/partition.metadata")
        assert caught.value.line_number == line_number
        assert str(caught.value).startswith("/d/t-0/partition.metadata")

    @settings(max_examples=100, deadline=None)
    @given(st.one_of(st.binary(max_size=60), st.text("version: 0\ntopic_id: AB", max_size=60).map(str.encode)))
    def test_fuzz_only_the_documented_error(self, data: bytes) -> None:
        try:
            topic_id = parse_partition_metadata(data, "f")
        except MalformedFile:
            return
        assert len(topic_id) == 16 and topic_id != ZERO_UUID
