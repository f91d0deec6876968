"""gregor.protocol.client: frames as a broker reads them, responses matched to their requests, and versions."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol import messages
from gregor.protocol.client import (
    InFlightRequests,
    RequestCodec,
    UnsupportedVersion,
    newest_version,
    version_ranges,
)
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.framing import SIZE_BYTES, frame_size, request_head, request_header
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from tests.protocol.message_values import every_version

REQUESTS = [(name, version) for name, version in every_version() if name.endswith("Request")]


def steps(generator: Any) -> Any:
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value


def response(message: Any, version: int, correlation_id: int, **header: Any) -> bytes:
    head = ResponseHeader(correlation_id=correlation_id, **header)
    made: bytes = head.encode(response_header_version(message.API_KEY, version)) + message.encode(version)
    return made


@pytest.mark.parametrize("client_id", [None, "", "a client ü"])
def test_every_request_is_framed_as_the_general_codec_says(client_id: str | None) -> None:
    for name, version in REQUESTS:
        request = getattr(messages, name)()
        if name == "ControlledShutdownRequest" and version == 0:
            client_id = None  # its header has none
        header = RequestHeader(
            request_api_key=request.API_KEY, request_api_version=version, correlation_id=77, client_id=client_id
        )
        expected = header.encode(request_header_version(request.API_KEY, version)) + request.encode(version)
        codec = RequestCodec(request.API_KEY, version, client_id)
        frame = codec.frame(request, 77)
        assert frame[SIZE_BYTES:] == expected, (name, version)
        assert frame == steps(codec.frame_in_steps(request, 77))


def test_a_broker_reads_what_a_client_framed() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    frame = RequestCodec(request.API_KEY, 4, "me").frame(request, 9)
    assert frame_size(frame, 0, 1000) == len(frame) - SIZE_BYTES
    assert request_head(frame, SIZE_BYTES) == (12, 4, 9)
    client_id, position = request_header(frame, SIZE_BYTES + 8, len(frame), 2)
    assert client_id == "me"
    assert HeartbeatRequest.decode(frame, 4, position) == (request, len(frame))


@pytest.mark.parametrize("version", [1, 4])
def test_a_response_is_decoded_where_its_header_ends(version: int) -> None:
    codec = RequestCodec(12, version, "me")
    data = response(HeartbeatResponse(error_code=27), version, 0x7FFF_FFFF)
    for given in (data, memoryview(data), memoryview(bytearray(data + b"more"))):
        assert codec.decode(given, 0x7FFF_FFFF) == (HeartbeatResponse(error_code=27), len(data))
        assert steps(codec.decode_in_steps(given, 0x7FFF_FFFF)) == codec.decode(given, 0x7FFF_FFFF)


def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    body = HeartbeatResponse(error_code=27).encode(4)
    data = (5).to_bytes(4) + b"\1\x63\3abc" + body
    assert RequestCodec(12, 4, "me").decode(data, 5) == (HeartbeatResponse(error_code=27), len(data))


def test_records_of_a_response_are_views_of_it() -> None:
    partition = FetchResponse.PartitionData(records=b"records")
    answer = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    data = bytearray(response(answer, 12, 1))
    message, _ = RequestCodec(1, 12, None).decode(memoryview(data), 1)
    records = message.responses[0].partitions[0].records
    data[data.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


@pytest.mark.parametrize("version", [1, 4])
def test_a_response_to_another_request_is_refused(version: int) -> None:
    codec = RequestCodec(12, version, "me")
    data = response(HeartbeatResponse(), version, 1)
    with pytest.raises(MalformedMessage, match="answers request 1, not 2"):
        codec.decode(data, 2)
    with pytest.raises(MalformedMessage, match="answers request 1, not 2"):
        steps(codec.decode_in_steps(data, 2))


@pytest.mark.parametrize("version", [1, 4])
def test_a_response_that_is_cut_short_is_malformed(version: int) -> None:
    codec = RequestCodec(12, version, "me")
    data = response(HeartbeatResponse(), version, 1)
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            codec.decode(data[:size], 1)


def test_responses_find_their_requests() -> None:
    requests = InFlightRequests("me")
    first, frame = requests.frame(MetadataRequest(topics=[]), 9)
    assert request_head(frame, SIZE_BYTES) == (3, 9, first)
    second, _ = requests.frame(FetchRequest(), 12)
    requests.expect(100, 12, 1)
    data = response(FetchResponse(error_code=3), 12, second)
    assert requests.response(data) == (second, FetchResponse(error_code=3), len(data))
    answer = response(MetadataResponse(controller_id=4), 9, first)
    assert requests.response(answer) == (first, MetadataResponse(controller_id=4), len(answer))
    expected = response(HeartbeatResponse(error_code=1), 1, 100)
    assert requests.response(expected) == (100, HeartbeatResponse(error_code=1), len(expected))
    for again in (data, b"", b"abcde"):
        with pytest.raises(MalformedMessage, match="which was not sent"):
            requests.response(again)


def test_the_newest_version_that_both_sides_know() -> None:
    one = ApiVersionsResponse.ApiVersion
    offered = version_ranges(
        ApiVersionsResponse(api_keys=[one(api_key=3, min_version=1, max_version=9), one(api_key=18, max_version=90)])
    )
    assert offered == {3: (1, 9), 18: (0, 90)}
    assert newest_version(offered, MetadataRequest) == 9
    assert newest_version(offered, MetadataRequest(), 4) == 4
    assert newest_version(offered, ApiVersionsRequest) == ApiVersionsRequest.MAX_VERSION


@pytest.mark.parametrize(
    ("offered", "max_version", "text"),
    [
        ({}, None, "METADATA in versions 0 to -1, needed is one of 0 to"),
        ({3: (90, 91)}, None, "METADATA in versions 90 to 91, needed is one of 0 to"),
        ({3: (5, 9)}, 4, "METADATA in versions 5 to 9, needed is one of 0 to 4"),
    ],
)
def test_no_version_that_both_sides_know(
    offered: dict[int, tuple[int, int]], max_version: int | None, text: str
) -> None:
    with pytest.raises(UnsupportedVersion, match=text) as refused:
        newest_version(offered, MetadataRequest, max_version)
    assert (refused.value.api_name, refused.value.offered) == ("METADATA", offered.get(3))
