"""The error line of a command that fails: the cause and the remedy."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


class CommandError(Exception):
    """A command has failed: it ends with exit code 1 and this text on standard error."""


_CHECK_ADDRESS = (
    "Check that the broker is up, and that this host can reach the address that it advertises (`gregor doctor`)."
)

# Remedy for each error code of the broker or the client library. The cause is the text of the error itself.
_REMEDIES = {
    KafkaError.TOPIC_ALREADY_EXISTS: "Choose another name, or add --if-not-exists to accept the existing topic.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "`gregor topics --list` shows the topics that exist.",
    KafkaError._UNKNOWN_TOPIC: "`gregor topics --list` shows the topics that exist.",
    KafkaError._UNKNOWN_PARTITION: "`gregor topics --describe --topic NAME` shows the partitions that exist.",
    KafkaError.TOPIC_EXCEPTION: "Topic names have 1 to 249 letters, digits, '.', '_' and '-'.",
    KafkaError.INVALID_REPLICATION_FACTOR: "Start more brokers, or choose fewer replicas.",
    KafkaError.GROUP_ID_NOT_FOUND: "`gregor groups --list` shows the groups that exist.",
    KafkaError.NON_EMPTY_GROUP: "Stop the group's consumers first.",
    KafkaError.UNKNOWN_MEMBER_ID: "Stop the group's consumers first.",
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "Raise max.request.size of the client and max.message.bytes of the topic, or send smaller records."
    ),
    KafkaError._MSG_TIMED_OUT: "Check that the leader of the partition is up; `gregor topics --describe` shows it.",
    KafkaError._TIMED_OUT: _CHECK_ADDRESS,
    KafkaError._TIMED_OUT_QUEUE: _CHECK_ADDRESS,
    KafkaError._TRANSPORT: _CHECK_ADDRESS,
    KafkaError._AUTHENTICATION: "Correct security.protocol and the sasl.* settings of the client.",
    KafkaError._SSL: "Correct security.protocol and the ssl.* settings of the client.",
    KafkaError._UNSUPPORTED_FEATURE: "The broker does not offer this API.",
    KafkaError.NOT_ENOUGH_REPLICAS: "Start the brokers that are down, or lower min.insync.replicas of the topic.",
}


def kafka_error(problem: KafkaException | KafkaError) -> KafkaError | None:
    """Return the KafkaError in an exception of the client library; None for the few that contain only a text."""
    inner = problem.args[0] if isinstance(problem, KafkaException) and problem.args else problem
    return inner if isinstance(inner, KafkaError) else None


def explain(problem: KafkaException | KafkaError) -> str:
    """Return cause and remedy of an error of the client library in one line."""
    error = kafka_error(problem)
    if error is None:
        return str(problem)
    cause = " ".join(error.str().split()).removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
    remedy = _REMEDIES.get(error.code(), "")
    return f"{cause} ({error.name()}). {remedy}".rstrip()
