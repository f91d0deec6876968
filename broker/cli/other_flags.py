"""Flags of Apache Kafka's tools, today's and yesterday's, that gregor's do not have: why, and what to give instead."""

from __future__ import annotations

_QUOTAS = "quotas of users, clients and addresses are not built yet; there is nothing to show or alter."
_NO_CLASSES = "gregor loads no Java classes."
_OLD_CLIENT = "it was for clients of before 0.9; leave it out."
_NO_DECODER = "only the records of __consumer_offsets are decoded, by --offsets-decoder."

_EVERYWHERE = {
    "--zookeeper": "it is reached through a broker; give --bootstrap-server HOST:PORT.",
    "--bootstrap-controller": "a controller has no address of its own here; give --bootstrap-server HOST:PORT.",
}
_OF_COMMANDS = {
    "topics": {
        "--delete-config": "settings of a topic are taken back by `gregor configs --alter --topic NAME --delete-config"
        " KEY`.",
        "--force": "there is no confirmation here; leave it out.",
        "--disable-rack-aware": "the brokers know their racks; leave it out.",
    },
    "configs": {
        **dict.fromkeys(
            ("--user", "--user-defaults", "--client", "--client-defaults", "--ip", "--ip-defaults"), _QUOTAS
        ),
        "--zk-tls-config-file": "no tool speaks to ZooKeeper by TLS; give --bootstrap-server HOST:PORT.",
    },
    "groups": {
        "--validate-regex": "subscriptions by expressions that the broker evaluates (KIP-848) are not built yet.",
        "--new-consumer": "there is no other one any more; leave it out.",
    },
    "get-offsets": {
        "--offsets": "one offset of each partition is shown; leave it out.",
        "--max-wait-ms": "a broker answers at once; leave it out.",
    },
    "dump-log": {
        **dict.fromkeys(
            (
                "--transaction-log-decoder",
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
        "--new-producer": "there is no other one any more; leave it out.",
        **dict.fromkeys(("--old-producer", "--queue-size", "--queue-enqueuetimeout-ms"), _OLD_CLIENT),
    },
    "console-consumer": {
        "--enable-systest-events": "it is for Apache Kafka's own system tests.",
        "--new-consumer": "there is no other one any more; leave it out.",
        **dict.fromkeys(("--csv-reporter-enabled", "--metrics-dir"), _OLD_CLIENT),
        "--blacklist": "give --include a regular expression that leaves them out.",
        "--delete-consumer-offsets": "`gregor groups --delete --group ID` does that.",
    },
}


def why_not(command: str | None, flag: str) -> str | None:
    """What to say of a flag that the command does not know; None if Apache Kafka's tool has none either."""
    reason = _OF_COMMANDS.get(command or "", {}).get(flag) or _EVERYWHERE.get(flag)
    return reason and f"{flag} is not taken: {reason}"
