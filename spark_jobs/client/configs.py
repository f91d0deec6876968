"""The settings of a topic, by DescribeConfigs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gregor.protocol.messages import DescribeConfigsRequest
from gregor.spark_jobs.client.cluster import ANY_BROKER, Cluster
from gregor.spark_jobs.client.failure import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSIONS = 0, 4
_TOPIC_RESOURCE = 2


def topic_configs(cluster: Cluster, topic: str, names: Sequence[str], broker: int = ANY_BROKER) -> Mapping[str, str]:
    """Return these settings of a topic, defaults included; raise KafkaFailure if the broker does not describe them."""
    lowest, highest = _VERSIONS
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names)
    )
    version = cluster.version(broker, DescribeConfigsRequest, highest, lowest)
    response = cluster.exchange(broker, DescribeConfigsRequest(resources=[resource]), version)
    result = response.results[0]
    if result.error_code:
        raise KafkaFailure(result.error_code, f"the broker did not describe the settings of the topic {topic}")
    return {one.name: one.value for one in result.configs if one.value is not None}
