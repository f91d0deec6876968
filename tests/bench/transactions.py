"""Transactions of ten records in one partition, by librdkafka: rate, and the time from their begin to their commit.

    python -m tests.bench.transactions --bootstrap 127.0.0.1:9092 --topic t --producers 8 --transactions 250

Each producer has a thread and a transactional id of its own, and commits one transaction after the other.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
import uuid

from confluent_kafka import Producer

RECORDS = 10
VALUE = bytes(100)
CALL_S = 30.0


def commit_one(producer: Producer, topic: str, partition: int) -> float:
    """Return the time that the transaction needed, in ms."""
    begin_s = time.perf_counter()
    producer.begin_transaction()
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, partition=partition)
    producer.commit_transaction(CALL_S)
    return (time.perf_counter() - begin_s) * 1000


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--transactions", type=int, default=1000, help="of each producer (1000)")
    given = parser.parse_args(arguments)
    run = uuid.uuid4()
    settings = {"bootstrap.servers": given.bootstrap, "linger.ms": 0}
    producers = [
        Producer({**settings, "transactional.id": f"bench-{run}-{number}"}) for number in range(given.producers)
    ]
    for producer in producers:
        producer.init_transactions(CALL_S)
        commit_one(producer, given.topic, 0)  # the first one of a producer finds the leader and the coordinator
    times_ms: list[list[float]] = [[] for _ in producers]

    def load(number: int) -> None:
        for _ in range(given.transactions):
            times_ms[number].append(commit_one(producers[number], given.topic, 0))

    threads = [threading.Thread(target=load, args=(number,)) for number in range(given.producers)]
    begin_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin_s
    found = sorted(one for each in times_ms for one in each)
    if len(found) < given.producers * given.transactions:
        print(f"only {len(found)} of {given.producers * given.transactions} transactions were committed")
        return 1
    last = found[min(len(found) - 1, len(found) * 99 // 100)]
    rate = len(found) / seconds
    print(f"{rate:.1f} transactions/s, median {statistics.median(found):.2f} ms, 99th {last:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
