"""`gregor delete-records`: what kafka-delete-records.sh does, with its flags and its output."""

from __future__ import annotations

from collections.abc import Sequence

import click
from confluent_kafka import TopicPartition

from gregor.broker.cli.client import METADATA_TIMEOUT_S, REQUEST_TIMEOUT_S, connect_admin, settle
from gregor.broker.cli.command import bootstrap_option, command_config_option, run
from gregor.broker.cli.errors import CommandError, explain
from gregor.broker.cli.partition_files import load_partitions
from gregor.protocol.topic_partition import TopicPartitionKey

EPILOG = """\b
Examples:
  echo '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}], "version": 1}' > delete.json
  gregor delete-records --offset-json-file delete.json

Offset -1 deletes all records of the partition. Exit code 1 when one of the partitions could not be served.
"""


@click.command("delete-records", epilog=EPILOG)
@bootstrap_option()
@command_config_option()
@click.option("--offset-json-file", required=True, metavar="FILE", help="Partitions with the first offset that stays.")
def delete_records(bootstrap: str, config_file: str | None, offset_json_file: str) -> int:
    """Delete the records below an offset from partitions."""
    wanted = load_partitions(offset_json_file, offsets=True)
    if not wanted:
        raise CommandError(f"{offset_json_file} names no partition.")
    admin = connect_admin(bootstrap, config_file)
    print("Executing records delete operation")
    # The client library asks for the leaders of all partitions first and fails as a whole where one is unknown.
    topics = admin.list_topics(timeout=METADATA_TIMEOUT_S).topics
    errors: dict[TopicPartitionKey, str] = {}
    known = []
    for (topic, partition), offset in wanted.items():
        if topic in topics and partition in topics[topic].partitions:
            known.append(TopicPartition(topic, partition, offset))
        else:
            errors[topic, partition] = "there is no such partition (UNKNOWN_TOPIC_OR_PART)."
    marks: dict[TopicPartitionKey, int] = {}
    if known:
        done, failed = settle(admin.delete_records(known, request_timeout=REQUEST_TIMEOUT_S))
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
