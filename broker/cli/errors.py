"""What a command says when it fails: one line that names the cause and what to do about it."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


class CommandError(Exception):
    """Ends a command with exit code 1; its text is the line the user reads."""


# Error code of the broker or the client library -> what the user can do. The cause comes from the error itself.
_REMEDIES = {
    KafkaError.TOPIC_ALREADY_EXISTS: "Choose another name, or add --if-not-exists to accept the existing topic.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "`gregor topics --list` shows the topics that exist.",
    KafkaError._UNKNOWN_TOPIC: "`gregor topics --list` shows the topics that exist.",
    KafkaError._UNKNOWN_PARTITION: "`gregor topics --describe --topic NAME` shows the partitions that exist.",
    KafkaError.TOPIC_EXCEPTION: "Topic names have 1 to 249 letters, digits, '.', '_' and '-'.",
    KafkaError.INVALID_REPLICATION_FACTOR: "There must be at least as many live brokers as replicas.",
    KafkaError.GROUP_ID_NOT_FOUND: "`gregor groups --list` shows the groups that exist.",
    KafkaError.NON_EMPTY_GROUP: "Stop the group's consumers first.",
    KafkaError.UNKNOWN_MEMBER_ID: "Stop the group's consumers first.",
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise max.message.bytes of the topic, or send smaller records.",
    KafkaError._MSG_TIMED_OUT: "Is the leader of the partition up? `gregor topics --describe` shows it.",
    KafkaError._TIMED_OUT: "Is the broker up, and does it advertise an address that this host can reach?",
    KafkaError._TIMED_OUT_QUEUE: "Is the broker up, and does it advertise an address that this host can reach?",
    KafkaError._TRANSPORT: "Is the broker up, and does it advertise an address that this host can reach?",
    KafkaError._UNSUPPORTED_FEATURE: "The broker does not offer this API.",
    KafkaError.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas asks for.",
}


def kafka_error(problem: KafkaException | KafkaError) -> KafkaError | None:
    """The KafkaError inside an exception of the client library; a few of its exceptions carry only a text."""
    inner = problem.args[0] if isinstance(problem, KafkaException) and problem.args else problem
    return inner if isinstance(inner, KafkaError) else None


def explain(problem: KafkaException | KafkaError) -> str:
    """Cause and remedy of an error of the client library, in one line."""
    error = kafka_error(problem)
    if error is None:
        return str(problem)
    cause = " ".join(error.str().split()).removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
    remedy = _REMEDIES.get(error.code(), "")
    return f"{cause} ({error.name()}). {remedy}".rstrip()
