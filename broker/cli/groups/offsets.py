"""`gregor groups --delete-offsets`: forget what a group committed for some topics, as kafka-consumer-groups.sh does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups.reset import parse_scope
from gregor.broker.cli.tables import Column, print_table
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from gregor.protocol.topic_partition import TopicPartition

WHOLE_TOPIC = -1
"""The partition of a topic that has none."""

MANY_COORDINATORS_FROM = 4
"""From this version on FindCoordinator asks for several groups."""


def delete_offsets(bootstrap: str, config_file: str | None, group: str, topics: Iterable[str]) -> int:
    """Prints a row for each partition; exit code 1 when one of them could not be forgotten. Raises CommandError."""
    scope = parse_scope(topics)
    with WireClient(bootstrap, config_file) as client:
        results = delete(client, group, scope)
    refused = {place: refusal for place, refusal in results.items() if refusal is not None}
    if not refused:
        print(f"Request succeeded for deleting offsets from group {group}.")
    rows: list[list[object]] = []
    for (topic, partition), refusal in sorted(results.items()):
        status = "Successful" if refusal is None else f"Error: {refusal}"
        rows.append([topic, "-" if partition == WHOLE_TOPIC else partition, status])
    print()
    print_table([Column("TOPIC", 15), Column("PARTITION", 10), Column("STATUS")], rows)
    if refused:
        raise CommandError(f"the offsets of {len(refused)} partition(s) stay")
    return 0


def delete(
    client: WireClient, group: str, scope: Mapping[str, list[int] | None]
) -> dict[TopicPartition, BrokerRefusal | None]:
    """None for each partition whose offset is gone. Raises BrokerRefusal when the group refuses as a whole."""
    results: dict[TopicPartition, BrokerRefusal | None] = {}
    wanted: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = []
    present = {topic.name: topic for topic in client.ask(MetadataRequest(topics=None)).topics}
    for name, partitions in scope.items():
        if partitions is None and name not in present:
            unknown = BrokerRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
            results[TopicPartition(name, WHOLE_TOPIC)] = unknown
            continue
        indexes = [part.partition_index for part in present[name].partitions] if partitions is None else partitions
        parts = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        wanted.append(OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=parts))
    request = OffsetDeleteRequest(group_id=group, topics=wanted)
    answer: OffsetDeleteResponse = client.ask(request, coordinator_of(client, group))
    check_code(answer.error_code, _why(answer.error_code, group))
    for topic in answer.topics:
        for part in topic.partitions:
            code = part.error_code
            results[TopicPartition(topic.name, part.partition_index)] = (
                BrokerRefusal(code, _why(code, group)) if code else None
            )
    return results


def coordinator_of(client: WireClient, group: str) -> int:
    """The broker that a group belongs to. Raises BrokerRefusal."""
    if client.version(FindCoordinatorRequest) < MANY_COORDINATORS_FROM:
        answer: FindCoordinatorResponse = client.ask(FindCoordinatorRequest(key=group))
        check_code(answer.error_code, answer.error_message)
        return answer.node_id
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=[group])).coordinators
    check_code(found.error_code, found.error_message)
    return int(found.node_id)


_CAUSES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "group '{}' does not exist",
    ErrorCode.NON_EMPTY_GROUP: "group '{}' has members: stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of group '{}' subscribe to the topic: stop them first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}


def _why(code: int, group: str) -> str | None:
    cause = _CAUSES.get(ErrorCode(code)) if code in ErrorCode.__members__.values() else None
    return cause and cause.format(group)
