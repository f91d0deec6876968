"""Requests about settings of topics, for tests that address one certain broker of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from gregor.protocol.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest

TOPIC, SET = 2, 0
"""A type of resource, and what to do with a setting of it."""


def alteration(topic: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    """Of one setting."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def description(topics: Sequence[str], key: str) -> DescribeConfigsRequest:
    """Of one setting of each, with where its value comes from."""
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic, configuration_keys=[key]
        )
        for topic in topics
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True)
