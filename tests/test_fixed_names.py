"""The names that others rely on: no renaming of ours may touch them.

`fixed-names.txt` lists options, settings, exit codes, files, nodes, tables, records, messages, client and group ids, a
line each, as gregor had them when the list was made. Each line must still be true; new names may join. A name that is
given up on purpose is removed from the list by hand, in the change that gives it up, with a line in CHANGELOG.md. New
names are added by `REWRITE=1 pytest tests/test_fixed_names.py`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import os
import re
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker import __main__ as gregor
from gregor.broker.admin_socket import address
from gregor.broker.cli.features import features
from gregor.broker.cli.transactions.command import transactions
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.client_metrics import CLIENT_METRICS_KEYS
from gregor.config.tables.group_keys import GROUP_KEYS
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.protocol.codec.model import Message
from gregor.protocol.schema import records_consumer_group, records_group, records_rebalances, records_transaction
from gregor.replication.store import embedded, nodes
from gregor.spark_jobs import cli as spark
from tests.support.processes import BrokerProcess
from tests.support.words import trees_of

LIST = Path(__file__).with_name("fixed-names.txt")
TOPIC = "fixed"
PACKAGES = ("broker", "config", "coordinator", "protocol", "replication", "spark_jobs", "storage")
RECORDS = (records_consumer_group, records_group, records_rebalances, records_transaction)
CLIENTS = (
    *("gregor-admin", "gregor-cluster", "gregor-doctor", "gregor-lag-reader", "gregor-spark", "__admin_client"),
    *("controller-", "broker-"),
)
"""Client ids of gregor, or their beginnings."""
REBALANCES = "__gregor_rebalances"
GROUPS = ("console-consumer-",)
"""Group ids of gregor, or their beginnings."""
FILES = (
    *("zookeeper-session.json", "gregor-moved", "_checkpoint", "batch_id=", "gregor-job.json", "gregor-ends.json"),
    *(REBALANCES, "_gregor_spark_batches", "gregor-query", "gregor-batch", "gregor.query."),
)
"""Files, folders, topics and properties that no broker of this test writes, or not in time."""


def listed() -> set[str]:
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def printed(*words: str) -> tuple[str, int]:
    """Return the output of a command, and its exit code."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = gregor.main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return out.getvalue(), code


def options() -> Iterator[str]:
    groups = [("transactions", name) for name in transactions.commands] + [
        ("features", name) for name in features.commands
    ]
    # `gregor spark connector` has no options.
    jobs = [("spark", name) for name in spark.COMMANDS if name != "connector"]
    for words in [*((name,) for name in gregor.COMMANDS), *jobs, *groups]:
        text, code = printed(*words, "--help")
        assert code == 0, words
        lines = re.sub(r"-\n\s+", "-", text)  # a name may be wrapped at a hyphen
        for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", lines))):
            yield f"option gregor {' '.join(words)} {option}"


def exit_codes() -> Iterator[str]:
    for words in (
        (),
        ("--help",),
        ("--version",),
        ("no-such-command",),
        ("start", "--no-such"),
        ("topics", "--no-such"),
    ):
        yield f"exit gregor {' '.join(words)} = {printed(*words)[1]}"
    for words in (("spark",), ("spark", "no-such"), ("start", "no-such-file.properties")):
        yield f"exit gregor {' '.join(words)} = {printed(*words)[1]}"


def settings() -> Iterator[str]:
    tables = {"broker": BROKER_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS, "client-metrics": CLIENT_METRICS_KEYS}
    for kind, table in tables.items():
        for definition in table.values():
            yield f"setting {kind} {definition.key} {definition.type}"


def text(versions: Any) -> str:
    return "none" if versions is None else f"{versions.first}-{versions.last}"


def records() -> Iterator[str]:
    for message in (value for module in RECORDS for value in vars(module).values()):
        if isinstance(message, Message):
            yield f"record {message.name} versions {text(message.versions)} flexible {text(message.flexible)}"
            for field in message.fields:
                yield f"record {message.name}.{field.name} {field.type} {text(field.versions)} tag {field.tag}"


def node_paths() -> Iterator[str]:
    for name, value in sorted(vars(nodes).items()):
        if name.isupper() and isinstance(value, str) and value.startswith("/"):
            yield f"node {value}"
    for path in nodes.PERSISTENT_PATHS:
        yield f"node at the start {path}"


def texts_of_code() -> set[str]:
    """Return the texts of the product, and the parts of those with values in them; docstrings as a whole."""
    return {
        node.value.removeprefix("/")
        for package in PACKAGES
        for _, tree in trees_of(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def client_ids() -> Iterator[str]:
    """Names by which gregor's own clients are known to a broker, and names of what they and Spark jobs write."""
    texts = texts_of_code()
    for kind, names in (("client", CLIENTS), ("group", GROUPS), ("file or property", FILES)):
        yield from (f"{kind} {name}" for name in names if name in texts)


def order(folder: str, **words: object) -> Iterator[dict[str, Any]]:
    with address.connect(folder) as connected, connected.makefile("rw") as stream:
        stream.write(json.dumps(words) + "\n")
        stream.flush()
        connected.shutdown(socket.SHUT_WR)
        for line in stream:
            yield json.loads(line)


def admin_messages(folder: str) -> Iterator[str]:
    orders: dict[str, dict[str, object]] = {
        "compact": {"command": "compact", "topic": TOPIC},
        "compact explain": {"command": "compact", "topic": TOPIC, "explain": True},
        "retention": {"command": "retention", "topic": TOPIC},
        "retention explain": {"command": "retention", "topic": TOPIC, "explain": True},
        "clients": {"command": "clients"},
        "repeats": {"command": "repeats"},
        "stalls": {"command": "stalls"},
        "unknown": {"command": "no such"},
    }
    for name, words in orders.items():
        for answer in order(folder, **words):
            for key in answer:
                yield f"admin socket {name}: {key}"


def use(broker: BrokerProcess) -> None:
    """A record of an idempotent producer, one that is refused (it has no key), a committed offset, and fetches."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact,delete"})
    admin.create_topics([topic])[TOPIC].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, b"value", b"key")
    assert producer.flush(20) == 0
    refused = Producer({"bootstrap.servers": broker.bootstrap})
    refused.produce(TOPIC, b"value")
    assert refused.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    message = consumer.poll(20)
    assert message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


def written(folder: Path) -> Iterator[str]:
    # A second after a group has joined, there is the topic of the history as well.
    for path in (one for one in folder.rglob("*") if REBALANCES not in str(one)):
        name = re.sub(r"__consumer_offsets-\d+", "__consumer_offsets-N", str(path.relative_to(folder)))
        if not name.endswith(".deleted"):
            yield "file " + re.sub(r"\d{20}", "<20 digits>", name)
    with contextlib.closing(sqlite3.connect(folder / embedded.FILE_NAME)) as store:
        for (sql,) in store.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
            yield f"store {' '.join(sql.split())}"
        yield f"store user_version {store.execute('PRAGMA user_version').fetchone()[0]}"
        for (path,) in store.execute("SELECT path FROM node WHERE instr(path, ?) = 0", (REBALANCES,)):
            yield "store node " + re.sub(r"\d{10}$", "N", re.sub(r"/partitions/\d+", "/partitions/N", path))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    lines = {*options(), *exit_codes(), *settings(), *records(), *node_paths(), *client_ids()}
    with BrokerProcess(tmp_path_factory.mktemp("fixed")) as broker:
        data = broker.folder / "data"
        use(broker)
        lines.update(admin_messages(str(data)))
        lines.update(f"file {path.name} of a running broker" for path in data.iterdir() if path.is_socket())
        lines.add(f"exit gregor start after SIGTERM = {broker.stop()}")
        lines.update(written(data))
    return lines


@pytest.mark.slow
def test_every_listed_name_is_still_there(found: set[str]) -> None:
    if os.environ.get("REWRITE"):
        header = "".join(f"# {line}\n" for line in (__doc__ or "").strip().splitlines())
        LIST.write_text(re.sub(r" +\n", "\n", header) + "".join(f"{line}\n" for line in sorted(found | listed())))
    assert sorted(listed() - found) == []


def test_commands_can_be_imported() -> None:
    for module, _ in gregor.COMMANDS.values():
        assert callable(importlib.import_module(module).main)
