"""Admin calls of librdkafka that older programs and UIs make: settings replaced as a whole, access rules."""

from __future__ import annotations

import warnings

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.confluent import NewTopicFactory, code_of
from tests.compat.records import WAIT_S

pytestmark = [pytest.mark.compat, pytest.mark.slow]


def test_librdkafka_replaces_all_settings(admin: AdminClient, new_topic: NewTopicFactory) -> None:
    topic = new_topic(1, {"retention.ms": "5000", "flush.ms": "7000"})
    wanted = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "6000"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert code_of(admin.alter_configs([wanted])[wanted]) is None
    [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    found = future.result(WAIT_S)
    assert (found["retention.ms"].value, found["flush.ms"].is_default) == ("6000", True)


def test_librdkafka_learns_that_there_are_no_access_rules(admin: AdminClient) -> None:
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    # Of a whole answer that is an error it keeps the rules, here none.
    assert admin.describe_acls(anything).result(WAIT_S) == []
    rule = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    assert code_of(admin.create_acls([rule])[rule]) == KafkaError.SECURITY_DISABLED
    assert code_of(admin.delete_acls([anything])[anything]) == KafkaError.SECURITY_DISABLED
