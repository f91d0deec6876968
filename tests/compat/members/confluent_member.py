"""A member of a consumer group with confluent-kafka; launch.py documents arguments, commands and lines."""

from __future__ import annotations

import queue
import sys
import threading

from confluent_kafka import Consumer

STRATEGIES = {"range": "range", "cooperative": "cooperative-sticky"}


def main() -> None:
    settings = dict(argument.split("=", 1) for argument in sys.argv[1:])
    consumer = Consumer(
        {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "client.id": settings["client"],
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 0,
            **protocol(settings),
        }
    )
    consumer.subscribe(settings["topics"].split(","))
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read, args=(commands,), daemon=True).start()
    owned = 0
    while True:
        consumer.poll(0.05)
        count = len(consumer.assignment())
        if count != owned:
            owned = count
            print(f"owns {owned}", flush=True)
        command = "" if commands.empty() else commands.get()
        if command == "end":
            break
        if command:
            consumer.subscribe(command.partition(" ")[2].split(","))
    consumer.close()
    print("closed", flush=True)


def protocol(settings: dict[str, str]) -> dict[str, str | int]:
    """With the consumer protocol the broker has the timeouts and the assignor."""
    if settings["protocol"] == "consumer":
        return {"group.protocol": "consumer"}
    return {
        "session.timeout.ms": int(settings["session_ms"]),
        "heartbeat.interval.ms": 500,
        "partition.assignment.strategy": STRATEGIES[settings["assignor"]],
    }


def read(commands: queue.Queue[str]) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    commands.put("end")


if __name__ == "__main__":
    main()
