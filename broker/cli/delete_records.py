"""`gregor delete-records`: deletes records, with the flags and the output of kafka-delete-records.sh."""

from __future__ import annotations

from collections.abc import Sequence

import click
from confluent_kafka import TopicPartition

from gregor.broker.cli.client import METADATA_TIMEOUT_S, REQUEST_TIMEOUT_S, collect_results, connect_admin
from gregor.broker.cli.command import bootstrap_option, command_config_option, run
from gregor.broker.cli.errors import CommandError, explain
from gregor.broker.cli.partition_files import load_partitions
from gregor.protocol.topic_partition import TopicPartitionKey

EPILOG = """\b
Examples:
  echo '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}], "version": 1}' > delete.json
  gregor delete-records --offset-json-file delete.json

Offset -1 deletes all records of the partition. The exit code is 1 if a partition failed.
"""


@click.command("delete-records", epilog=EPILOG)
@bootstrap_option()
@command_config_option()
@click.option(
    "--offset-json-file", required=True, metavar="FILE", help="Partitions, each with the first offset to keep."
)
def delete_records(bootstrap: str, config_file: str | None, offset_json_file: str) -> int:
    """Delete the records below an offset from partitions."""
    wanted = load_partitions(offset_json_file, offsets=True)
    if not wanted:
        raise CommandError(f"{offset_json_file} has no partitions.")
    admin = connect_admin(bootstrap, config_file)
    print("Executing records delete operation")
    # The client library fails as a whole if it does not know the leader of one partition.
    topics = admin.list_topics(timeout=METADATA_TIMEOUT_S).topics
    errors: dict[TopicPartitionKey, str] = {}
    known = []
    for (topic, partition), offset in wanted.items():
        if topic in topics and partition in topics[topic].partitions:
            known.append(TopicPartition(topic, partition, offset))
        else:
            errors[topic, partition] = "the partition does not exist (UNKNOWN_TOPIC_OR_PART)."
    marks: dict[TopicPartitionKey, int] = {}
    if known:
        done, failed = collect_results(admin.delete_records(known, request_timeout=REQUEST_TIMEOUT_S))
        marks = {(part.topic, part.partition): records.low_watermark for part, records in done.items()}
        errors |= {(part.topic, part.partition): explain(error) for part, error in failed.items()}
    print("Records delete operation completed:")
    for topic, partition in wanted:
        if (topic, partition) in errors:
            print(f"partition: {topic}-{partition}\terror: {errors[topic, partition]}")
        else:
            print(f"partition: {topic}-{partition}\tlow_watermark: {marks[topic, partition]}")
    return 1 if errors else 0


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(delete_records, arguments)
