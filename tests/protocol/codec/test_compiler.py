"""gregor.protocol.codec.compiler: the compiled codecs against a slow and obvious one, and against hostile bytes."""

from __future__ import annotations

import time
import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol import messages
from gregor.protocol.codec.classes import build_class
from gregor.protocol.codec.model import Field, Message, Struct
from gregor.protocol.errors import MalformedMessage, UnsupportedField
from gregor.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    ProduceRequest,
    ProduceResponse,
    RequestHeader,
)
from tests.protocol import reference_codec
from tests.protocol.message_values import every_version, random_message, random_of_class

EVERY_VERSION = every_version()
SEEDS = st.integers(0, 2**32)


def codec(name: str) -> Any:
    return getattr(messages, name)


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_compiled_equals_reference(name: str, version: int, seed: int) -> None:
    message = random_message(Random(seed), name, version)
    expected = reference_codec.encode(messages.schema(name), message, version)
    assert message.encode(version) == expected
    assert codec(name).decode(expected, version) == (message, len(expected))
    assert reference_codec.decode(messages.schema(name), codec(name), expected, version) == (message, len(expected))


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
def test_position_tail_and_every_buffer_type(name: str, version: int) -> None:
    message = random_message(Random(version), name, version)
    encoded = message.encode(version)
    padded = b"head" + encoded + b"\x01\xff\x00 tail"
    for buffer in (padded, bytearray(padded), memoryview(padded)):
        assert codec(name).decode(buffer, version, 4) == (message, 4 + len(encoded))
    out = bytearray(b"head")
    message.encode_into(out, version)
    assert out == b"head" + encoded


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
def test_truncation_at_every_byte(name: str, version: int) -> None:
    encoded = random_message(Random(7), name, version).encode(version)
    # Positions in data for which all positions would need too long: the ends, and a spread in between.
    cuts = range(len(encoded)) if len(encoded) < 300 else [*range(100), *range(100, len(encoded), len(encoded) // 100)]
    for cut in cuts:
        with pytest.raises(MalformedMessage):
            codec(name).decode(encoded[:cut], version)


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_mutated_messages(name: str, version: int, seed: int) -> None:
    random = Random(seed)
    original = random_message(random, name, version).encode(version)
    for _ in range(10):
        mutated = bytearray(original)
        for _ in range(random.randint(1, 3)):
            if mutated:
                mutated[random.randrange(len(mutated))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
        assert_same_verdict(name, version, bytes(mutated))


@pytest.mark.parametrize("name", messages.message_names())
@settings(max_examples=20, deadline=None)
@given(data=st.binary(max_size=60), pick=st.integers(0, 100))
def test_random_bytes(name: str, data: bytes, pick: int) -> None:
    versions = list(messages.schema(name).versions)
    assert_same_verdict(name, versions[pick % len(versions)], data)


def assert_same_verdict(name: str, version: int, data: bytes) -> None:
    """Both codecs read the same, or both refuse, the compiled one by MalformedMessage."""
    try:
        expected = reference_codec.decode(messages.schema(name), codec(name), data, version)
    except reference_codec.Malformed:
        with pytest.raises(MalformedMessage):
            codec(name).decode(data, version)
    else:
        found = codec(name).decode(data, version)
        # A float that is not a number equals nothing, itself included: only the text of such messages is equal.
        assert found == expected or ("nan" in repr(expected) and repr(found) == repr(expected))


def every_type() -> Message:
    """A message with the properties that the language has and no schema uses yet."""

    def field(name: str, type: str, versions: str = "0+", **more: Any) -> Field:
        return Field(name, type, versions, help="Help.", **more)

    inner = [field("a", "int16"), field("b", "string", "1+", ignorable=True), field("c", "[]uuid", "2+", tag=0)]
    kinds = ["bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string", "bytes"]
    return Message(
        "TestRequest",
        [
            field("nullable_struct", "Inner", nullable="1+"),
            field("null_by_default", "Inner", "1+", nullable="1+", default=None),
            field("records", "records", nullable="0+"),
            field("struct_of_lists", "Outer", fields=[field("inners", "[]Inner"), field("numbers", "[]int64")]),
            *(field(f"one_{kind}", kind) for kind in kinds),
            *(field(f"many_{kind}", f"[]{kind}", nullable="2+") for kind in kinds),
            *(field(f"tagged_{kind}", kind, "2+", tag=tag) for tag, kind in enumerate(kinds)),
            field("tagged_struct", "Inner", "2+", tag=200, nullable="2+", default=None),
            field("tagged_structs", "[]Inner", "2+", tag=201, nullable="2+"),
            field("tagged_outer", "Outest", "2+", tag=202, fields=[field("numbers", "[]int8")]),
            field("last", "int8", "0-1", ignorable=True),
        ],
        versions="0-2",
        flexible="2+",
        structs=[Struct("Inner", inner)],
    )


EVERY_TYPE = every_type()
EVERY_TYPE_CLASS: Any = build_class(EVERY_TYPE)


@pytest.mark.parametrize("version", [0, 1, 2])
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_every_type_equals_reference(version: int, seed: int) -> None:
    message = random_of_class(Random(seed), EVERY_TYPE, EVERY_TYPE_CLASS, version)
    expected = reference_codec.encode(EVERY_TYPE, message, version)
    assert message.encode(version) == expected
    assert EVERY_TYPE_CLASS.decode(expected, version) == (message, len(expected))
    assert reference_codec.decode(EVERY_TYPE, EVERY_TYPE_CLASS, expected, version) == (message, len(expected))
    for cut in range(0, len(expected), 1 + len(expected) // 50):
        with pytest.raises(MalformedMessage):
            EVERY_TYPE_CLASS.decode(expected[:cut], version)


def test_defaults_of_structs_that_hold_lists_are_not_shared() -> None:
    EVERY_TYPE_CLASS().struct_of_lists.numbers.append(1)
    assert EVERY_TYPE_CLASS().struct_of_lists.numbers == []
    decoded, _ = EVERY_TYPE_CLASS.decode(EVERY_TYPE_CLASS().encode(2), 2)
    assert decoded == EVERY_TYPE_CLASS()


class TestHostile:
    """One case for each way to lie, with the bytes written out."""

    def refuses(self, class_: Any, version: int, data: bytes) -> None:
        with pytest.raises(MalformedMessage):
            class_.decode(data, version)

    def test_giant_count_is_refused_before_anything_is_allocated(self) -> None:
        tracemalloc.start()
        started = time.thread_time()
        try:
            self.refuses(MetadataRequest, 1, b"\x7f\xff\xff\xff" + bytes(1000))
            self.refuses(MetadataRequest, 12, b"\xff\xff\xff\xff\x0f" + bytes(1000))
            self.refuses(OffsetFetchRequest, 1, b"\x00\x01g\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff" + bytes(1000))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1_000_000
        assert time.thread_time() - started < 0.2

    def test_count_that_only_its_smallest_elements_exceed(self) -> None:
        # Each topic has at least six bytes in version 1: 200 of them do not fit into 1000 bytes.
        self.refuses(ListOffsetsRequest, 1, b"\xff\xff\xff\xff\x00\x00\x00\xc8" + bytes(1000))

    def test_negative_lengths(self) -> None:
        self.refuses(MetadataRequest, 1, b"\xff\xff\xff\xfe")
        self.refuses(MetadataRequest, 0, b"\xff\xff\xff\xff")
        self.refuses(MetadataRequest, 0, b"\x00\x00\x00\x01\xff\xff")
        self.refuses(MetadataRequest, 0, b"\x00\x00\x00\x01\x80\x00")
        self.refuses(ProduceRequest, 3, b"\xff\xfe\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00")

    def test_overlong_and_overflowing_varints(self) -> None:
        self.refuses(MetadataRequest, 12, b"\x80\x80\x80\x80\x80\x01\x00\x00\x00\x00")
        self.refuses(MetadataRequest, 12, b"\x81\x80\x80\x80\x10\x00\x00\x00\x00")

    def test_longer_spelling_of_a_small_varint_is_read(self) -> None:
        assert MetadataRequest.decode(b"\x81\x80\x00\x00\x00\x00", 12) == (
            MetadataRequest(topics=[], allow_auto_topic_creation=False),
            6,
        )

    def test_bad_utf8(self) -> None:
        self.refuses(MetadataRequest, 0, b"\x00\x00\x00\x01\x00\x02\xc3\x28")
        # A surrogate: Java's modified UTF-8, not UTF-8.
        self.refuses(MetadataRequest, 0, b"\x00\x00\x00\x01\x00\x03\xed\xa0\x80")

    def test_string_of_more_than_32767_bytes(self) -> None:
        longest = DeleteTopicsRequest(topic_names=["x" * 32767])
        assert DeleteTopicsRequest.decode(longest.encode(5), 5)[0] == longest
        self.refuses(DeleteTopicsRequest, 5, b"\x02" + reference_codec.uvarint(32769) + b"x" * 32768 + bytes(5))
        for version in (3, 5):
            with pytest.raises(ValueError, match=r"DeleteTopicsRequest v3|longer than"):
                DeleteTopicsRequest(topic_names=["x" * 32768]).encode(version)

    def test_tags(self) -> None:
        plain = MetadataRequest(topics=[]).encode(12)
        assert plain[-1:] == b"\x00"
        # Unknown tags are skipped, whatever their numbers.
        assert MetadataRequest.decode(plain[:-1] + b"\x02\x09\x01a\xff\xff\xff\xff\x0f\x02bc", 12)[0].topics == []
        for section in (b"\x01\x00\x05abc", b"\xff\xff\xff\xff\x0f", b"\x02\x00\x00", b"\x01\x00\xff\xff\xff\xff\x0f"):
            self.refuses(MetadataRequest, 12, plain[:-1] + section)

    def test_known_tag_whose_size_is_not_that_of_its_value(self) -> None:
        plain = FetchRequest().encode(12)
        tag = b"\x01\x00\x03\x02ab"
        assert FetchRequest.decode(plain[:-1] + tag[:2] + b"\x02\x02a", 12)[0].cluster_id == "a"
        self.refuses(FetchRequest, 12, plain[:-1] + tag)
        self.refuses(FetchRequest, 12, plain[:-1] + tag[:2] + b"\x01\x02a")

    def test_version_that_does_not_exist(self) -> None:
        self.refuses(RequestHeader, 3, bytes(100))
        self.refuses(FetchRequest, 19, bytes(100))
        self.refuses(FetchRequest, -1, bytes(100))
        with pytest.raises(UnsupportedField, match="no version 19"):
            FetchRequest().encode(19)

    def test_error_names_message_version_and_field(self) -> None:
        with pytest.raises(MalformedMessage, match=r"MetadataRequest v0: MetadataRequest\.topics"):
            MetadataRequest.decode(b"\x00\x00\x01\x00", 0)


class TestFieldsThatAVersionLacks:
    def test_ignorable_ones_are_dropped(self) -> None:
        response = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name="t",
                    topic_id=b"i" * 16,
                    partition_responses=[
                        ProduceResponse.PartitionProduceResponse(base_offset=5, log_start_offset=3, error_message="no")
                    ],
                )
            ],
            throttle_time_ms=9,
        )
        decoded, _ = ProduceResponse.decode(response.encode(0), 0)
        assert decoded == ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name="t", partition_responses=[ProduceResponse.PartitionProduceResponse(base_offset=5)]
                )
            ]
        )

    @pytest.mark.parametrize(
        ("message", "version", "field"),
        [
            (ProduceRequest(transactional_id="x"), 2, "transactional_id"),
            (FetchResponse(session_id=1), 6, "session_id"),
            (MetadataRequest(allow_auto_topic_creation=False), 3, "allow_auto_topic_creation"),
            (MetadataRequest(include_topic_authorized_operations=True), 7, "include_topic_authorized_operations"),
            (FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=1)), 14, "replica_state"),
            (OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup()]), 7, "groups"),
            (OffsetFetchRequest(topics=None), 8, "topics"),
            (CreateTopicsRequest(validate_only=True), 0, "validate_only"),
            (RequestHeader(), 3, "no version 3"),
        ],
    )
    def test_others_are_refused(self, message: Any, version: int, field: str) -> None:
        out = bytearray(b"before")
        with pytest.raises(UnsupportedField, match=field):
            message.encode_into(out, version)
        assert out == b"before"

    def test_defaults_pass_in_every_shape(self) -> None:
        # An equal struct is as good as the shared default.
        request = FetchRequest(replica_state=FetchRequest.ReplicaState())
        assert request.encode(14) == FetchRequest().encode(14)
        assert request.encode(15) == FetchRequest().encode(15)

    def test_null_where_the_version_knows_none(self) -> None:
        with pytest.raises(UnsupportedField, match="topics may not be null in version 0"):
            MetadataRequest(topics=None).encode(0)
        with pytest.raises(UnsupportedField, match="name may not be null in version 11"):
            MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=None)]).encode(11)


class Region:
    size_bytes = 300


class TestRecords:
    def response(self, records: Any) -> FetchResponse:
        partition = FetchResponse.PartitionData(partition_index=1, records=records)
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
        return FetchResponse(responses=[topic])

    @pytest.mark.parametrize("version", [4, 12])
    def test_region_is_spliced(self, version: int) -> None:
        region = Region()
        out, splices = bytearray(b"abc"), list[tuple[int, Any]]()
        self.response(region).encode_into(out, version, splices)
        ((position, spliced),) = splices
        assert spliced is region
        out[position:position] = b"r" * 300
        assert out == b"abc" + self.response(b"r" * 300).encode(version)

    def test_region_needs_splices(self) -> None:
        with pytest.raises(TypeError, match="splices"):
            self.response(Region()).encode(12)

    def test_splices_of_a_refused_message_are_withdrawn(self) -> None:
        response = self.response(Region())
        response.responses[0].partitions.append(FetchResponse.PartitionData(preferred_read_replica=3))
        kept = (2, Region())
        out, splices = bytearray(b"abc"), [kept]
        with pytest.raises(UnsupportedField):
            response.encode_into(out, 4, splices)
        assert bytes(out) == b"abc"
        assert splices == [kept]

    @pytest.mark.parametrize("records", [None, b"", b"r", bytearray(b"rr"), memoryview(b"rrr")])
    def test_bytes_like_and_null(self, records: Any) -> None:
        decoded, _ = FetchResponse.decode(self.response(records).encode(12), 12)
        assert decoded.responses[0].partitions[0].records == records

    def test_decoded_records_are_a_view_of_the_input(self) -> None:
        encoded = bytearray(self.response(b"rrrr").encode(12))
        view = FetchResponse.decode(encoded, 12)[0].responses[0].partitions[0].records
        assert isinstance(view, memoryview) and not view.readonly
        view[0] = ord("R")
        assert b"Rrrr" in encoded
        assert view.obj is encoded


def test_value_that_does_not_fit_its_type() -> None:
    with pytest.raises(ValueError, match="ProduceRequest v3"):
        ProduceRequest(acks=70000).encode(3)
