"""Flags of present and past tools of Apache Kafka that gregor lacks, each with the reason and the replacement."""

from __future__ import annotations

_NO_CLASSES = "gregor loads no Java classes."
_OLD_CLIENT = "it was for clients before 0.9; leave it out."
_NO_DECODER = "records are decoded of __consumer_offsets (--offsets-decoder) and __transaction_state only."
_RULES_OF_BROKERS = "the brokers change the rules; give --bootstrap-server HOST:PORT."
_NO_KRAFT = "gregor has no KRaft metadata version; give --feature NAME=LEVEL."

_EVERYWHERE = {
    "--zookeeper": "this command connects to a broker; give --bootstrap-server HOST:PORT.",
    "--bootstrap-controller": "gregor has no separate controllers; give --bootstrap-server HOST:PORT.",
}
OF_COMMANDS = {
    "topics": {
        "--delete-config": "use `gregor configs --alter --topic NAME --delete-config KEY`.",
        "--force": "gregor never prompts for confirmation; leave it out.",
        "--disable-rack-aware": "the broker assigns replicas, by racks if broker.rack is set; leave it out.",
    },
    "acls": dict.fromkeys(("--authorizer", "--authorizer-properties", "--zk-tls-config-file"), _RULES_OF_BROKERS),
    "features": {
        "--metadata": _NO_KRAFT,
        "--release-version": _NO_KRAFT,
    },
    "groups": {
        "--new-consumer": "it is the only one now; leave it out.",
    },
    "get-offsets": {
        "--offsets": "the command shows one offset per partition; leave it out.",
        "--max-wait-ms": "the broker answers without a wait; leave it out.",
    },
    "dump-log": {
        **dict.fromkeys(
            (
                "--cluster-metadata-decoder",
                "--remote-log-metadata-decoder",
                "--share-group-state-decoder",
            ),
            _NO_DECODER,
        ),
    },
    "console-producer": {
        "--key-serializer": f"{_NO_CLASSES} Keys are sent as they are given.",
        "--value-serializer": f"{_NO_CLASSES} Lines are sent as they are given.",
        "--new-producer": "it is the only one now; leave it out.",
        **dict.fromkeys(("--old-producer", "--queue-size", "--queue-enqueuetimeout-ms"), _OLD_CLIENT),
    },
    "console-consumer": {
        "--enable-systest-events": "it is for Apache Kafka's own system tests.",
        "--new-consumer": "it is the only one now; leave it out.",
        **dict.fromkeys(("--csv-reporter-enabled", "--metrics-dir"), _OLD_CLIENT),
        "--blacklist": "use --include with an expression that does not match them, such as '(?!orders$).*'.",
        "--delete-consumer-offsets": "use `gregor groups --delete --group ID`.",
    },
}


def why_not(command: str | None, flag: str) -> str | None:
    """Return the error text for a flag that a command lacks; None if Apache Kafka's tool never had it."""
    reason = OF_COMMANDS.get(command or "", {}).get(flag) or _EVERYWHERE.get(flag)
    return reason and f"{flag} is not supported: {reason}"
