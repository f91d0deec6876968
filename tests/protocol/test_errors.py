"""gregor.protocol.errors. The codes themselves are compared with Apache Kafka's in test_schema_kafka."""

from __future__ import annotations

import struct

from gregor.protocol.errors import ErrorCode, KafkaError


def test_codes_pack_as_integers_and_come_back() -> None:
    assert struct.pack(">h", ErrorCode.UNKNOWN_SERVER_ERROR) == b"\xff\xff"
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_retriable() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.TOPIC_AUTHORIZATION_FAILED.retriable


def test_kafka_error_tells_code_and_message() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "bad retention")) == "INVALID_CONFIG: bad retention"
    error = KafkaError(ErrorCode.INVALID_CONFIG)
    assert (str(error), error.code, error.message) == ("INVALID_CONFIG", ErrorCode.INVALID_CONFIG, "")


def test_a_message_that_repeats_something_long_keeps_its_ends() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG, f"retention.ms={'x' * 40_000}: must be a whole number")
    assert len(error.message) < 2100
    assert error.message.startswith("retention.ms=xx") and error.message.endswith("xx: must be a whole number")
    assert "..." in str(error)
