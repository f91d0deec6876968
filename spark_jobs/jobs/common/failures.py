"""Failures of Spark as one line with the cause and the remedy."""

from __future__ import annotations

import re

REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"UnknownTopicOrPartition",
        "a topic does not exist; create it with `gregor topics --create --topic NAME`, or correct the name",
    ),
    (
        r"failOnDataLoss|data may have been lost|KAFKA_DATA_LOSS|PARTITION_OFFSET_CHANGED|OffsetOutOfRange",
        "records were deleted before this query read them; continue with the ones that are left by "
        "--source-option failOnDataLoss=false, or start anew with another --checkpoint",
    ),
    (
        r"SCHEMA_NOT_COMPATIBLE|StateSchemaNotCompatible|STATE_STORE_(KEY|VALUE)_(ROW_FORMAT|SCHEMA)|"
        r"STATE_STORE_INVALID_(KEY|VALUE)_SCHEMA|InvalidKeyRowFormat|InvalidValueRowFormat",
        "the state in the checkpoint has another schema than this query; give the schema and the options that it was "
        "written with, or start anew with another --checkpoint",
    ),
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|ConcurrentModificationException|CONCURRENT_QUERY",
        "another query uses the same checkpoint; stop it, or give another --checkpoint",
    ),
    (
        r"Timed out waiting for a node assignment|describeTopics|Failed to (update|construct) (metadata|kafka)",
        "no broker answers; check that one runs, and that its advertised listeners can be reached from here",
    ),
    (
        r"(Topic|Group|Cluster)AuthorizationException",
        "the broker refuses access; give the credentials by --kafka-option, or permissions to this user",
    ),
    (
        r"RecordTooLargeException|MESSAGE_TOO_LARGE",
        "a row is larger than the output topic permits; raise its max.message.bytes and --kafka-option "
        "max.request.size=BYTES",
    ),
    (
        r"PATH_NOT_FOUND",
        "create the folder, or correct --path",
    ),
    (
        r"FAILED_READ_FILE|FILE_NOT_EXIST",
        "a file was removed or changed before its batch was written; put it back under the same name, or leave such "
        "files out by --source-option ignoreMissingFiles=true",
    ),
    (
        r"(Append|Update|append|update) output mode|OUTPUT_MODE",
        "this statement needs the other --mode: update for totals that change, append for joins and finished windows",
    ),
    (
        r"UNRESOLVED_COLUMN|UNRESOLVED_ROUTINE|FIELD_NOT_FOUND",
        "correct the name in the expression; `--help` lists the columns of a record",
    ),
)


def explained(text: str) -> str:
    """Return a failure in one line, with the remedy if there is a known one."""
    cause = " ".join(line.strip() for line in text.splitlines() if line.strip())
    for pattern, remedy in REMEDIES:
        if re.search(pattern, text) and remedy not in cause:
            return f"{cause.rstrip('.;')}: {remedy}"
    return cause
