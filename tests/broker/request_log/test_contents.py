"""gregor.broker.request_log.contents: bounded, and without secrets."""

from __future__ import annotations

import json

from gregor.broker.request_log.contents import MAX_TEXT, MAX_VALUES, contents, error_counts
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenResponse,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
)
from gregor.storage.log.read import LogSlice

SECRET = "correct horse battery staple"


def test_names_are_those_of_apache_kafka() -> None:
    topic = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=3, records=memoryview(bytes(70)))]
    )
    shown = contents(ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic]))
    assert shown["transactionalId"] is None
    assert (shown["acks"], shown["timeoutMs"]) == (-1, 5)
    assert shown["topicData"][0]["name"] == "t"
    assert shown["topicData"][0]["topicId"] == "AAAAAAAAAAAAAAAAAAAAAA"
    assert shown["topicData"][0]["partitionData"] == [{"index": 3, "recordsSizeInBytes": 70}]


def test_pieces_of_files_are_their_sizes() -> None:
    data = FetchResponse.PartitionData(partition_index=1, records=LogSlice(None, 0, 4711, 0, True))
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])
    assert contents(ApiKey.FETCH, response)["responses"][0]["partitions"][0]["recordsSizeInBytes"] == 4711


def test_secrets_are_not_shown() -> None:
    data = SECRET.encode()
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="anna", mechanism=1, iterations=4096, salt=data, salted_password=data
    )
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="ssl.keystore.password", value=SECRET)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    shown = [
        contents(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=data)),
        contents(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest(upsertions=[upsertion])),
        contents(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource])),
        contents(ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenResponse(hmac=data)),
    ]
    text = json.dumps(shown)
    assert SECRET not in text
    assert text.count(str(len(data))) == 4
    assert "ssl.keystore.password" in text and "(hidden)" in text and "anna" in text


def test_long_requests_are_cut() -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="n" * 1000) for _ in range(10_000)]
    text = json.dumps(contents(ApiKey.METADATA, MetadataRequest(topics=topics)))
    assert len(text) < MAX_VALUES * (MAX_TEXT + 200)
    assert "more" in text and "(1000 characters)" in text


def test_errors_are_counted_over_all_parts() -> None:
    def part(code: int) -> FetchResponse.PartitionData:
        return FetchResponse.PartitionData(error_code=code, records=b"")

    parts = [part(ErrorCode.NOT_LEADER_OR_FOLLOWER), part(0), part(0), part(4999)]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=parts)])
    assert error_counts(response) == {"NONE": 3, "NOT_LEADER_OR_FOLLOWER": 1, "4999": 1}
