"""`gregor groups --delete-offsets`: deletes committed offsets of topics, as kafka-consumer-groups.sh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.broker.cli.coordinators import coordinator_of, when_ready
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups.reset import parse_scope
from gregor.broker.cli.tables import Column, print_table
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import MetadataRequest, OffsetDeleteRequest, OffsetDeleteResponse
from gregor.protocol.topic_partition import TopicPartition

WHOLE_TOPIC = -1
"""The partition of results for a topic that does not exist."""


def delete_offsets(bootstrap: str, config_file: str | None, group: str, topics: Iterable[str], timeout_s: float) -> int:
    """Delete the offsets and print a row per partition; raise CommandError if one could not be deleted."""
    scope = parse_scope(topics)
    with WireClient(bootstrap, config_file) as client:
        results = when_ready(lambda: delete(client, group, scope), timeout_s=timeout_s)
    refused = {key: refusal for key, refusal in results.items() if refusal is not None}
    if not refused:
        print(f"Request succeeded for deleting offsets from group {group}.")
    rows: list[list[object]] = []
    for (topic, partition), refusal in sorted(results.items()):
        status = "Successful" if refusal is None else f"Error: {refusal}"
        rows.append([topic, "-" if partition == WHOLE_TOPIC else partition, status])
    print()
    print_table([Column("TOPIC", 15), Column("PARTITION", 10), Column("STATUS")], rows)
    if refused:
        raise CommandError(f"the offsets of {len(refused)} partition(s) were not deleted")
    return 0


def delete(
    client: WireClient, group: str, scope: Mapping[str, list[int] | None]
) -> dict[TopicPartition, BrokerRefusal | None]:
    """Return None for each deleted offset, else the error; raise BrokerRefusal if the whole request is refused."""
    results: dict[TopicPartition, BrokerRefusal | None] = {}
    wanted: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = []
    present = {topic.name: topic for topic in client.send(MetadataRequest(topics=None)).topics}
    for name, partitions in scope.items():
        if partitions is None and name not in present:
            unknown = BrokerRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
            results[TopicPartition(name, WHOLE_TOPIC)] = unknown
            continue
        indexes = [part.partition_index for part in present[name].partitions] if partitions is None else partitions
        parts = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        wanted.append(OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=parts))
    request = OffsetDeleteRequest(group_id=group, topics=wanted)
    answer: OffsetDeleteResponse = client.send(request, coordinator_of(client, group))
    check_code(answer.error_code, _why(answer.error_code, group))
    for topic in answer.topics:
        for part in topic.partitions:
            code = part.error_code
            results[TopicPartition(topic.name, part.partition_index)] = (
                BrokerRefusal(code, _why(code, group)) if code else None
            )
    return results


_CAUSES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "group '{}' does not exist",
    ErrorCode.NON_EMPTY_GROUP: "group '{}' has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of group '{}' subscribe to the topic; stop its consumers first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the partition does not exist",
}


def _why(code: int, group: str) -> str | None:
    cause = _CAUSES.get(ErrorCode(code)) if code in ErrorCode.__members__.values() else None
    return cause and cause.format(group)
