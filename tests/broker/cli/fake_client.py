"""A cluster without sockets for the commands that send requests of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import WireClient
from gregor.protocol.messages import ApiMessage, FindCoordinatorResponse, MetadataResponse

Answers = Mapping[type[ApiMessage], Callable[[Any, int | None], Any]]
"""By kind of request a function from the request, and the broker it is sent to, to the response."""


class FakeClient(WireClient):
    """A client whose brokers answer by functions; `sent` has the requests with their brokers."""

    def __init__(
        self, answers: Answers, brokers: Iterable[int] = (1, 2), versions: Mapping[type[ApiMessage], int] | None = None
    ) -> None:
        self._answers = answers
        self._versions = versions or {}
        self.brokers = {broker_id: (f"kafka{broker_id}", 9092) for broker_id in brokers}
        self.controller_id = 1
        self.sent: list[tuple[ApiMessage, int | None]] = []

    def refresh(self) -> None:
        """Keep the brokers."""

    def send(self, request: ApiMessage, node_id: int | None = None) -> Any:
        self.sent.append((request, node_id))
        return self._answers[type(request)](request, node_id)

    def version(self, kind: type[ApiMessage], node_id: int | None = None) -> int:
        if kind not in self._answers:
            raise CommandError(f"the broker does not support {kind.__name__}, which this command needs.")
        return self._versions.get(kind, kind.MAX_VERSION)

    def close(self) -> None:
        """There is nothing to close."""

    def requests(self, kind: type[ApiMessage]) -> list[Any]:
        """Return the requests of one kind."""
        return [request for request, _ in self.sent if type(request) is kind]


def metadata(leaders: Mapping[str, Iterable[int]], replicas: Iterable[int] = (1, 2)) -> MetadataResponse:
    """Return the metadata of topics, each with the leaders of its partitions."""
    return MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponse.MetadataResponsePartition(
                        partition_index=index, leader_id=leader, replica_nodes=list(replicas)
                    )
                    for index, leader in enumerate(of_topic)
                ],
            )
            for name, of_topic in leaders.items()
        ]
    )


def coordinator(node_id: int, error_code: int = 0) -> FindCoordinatorResponse:
    """Return the coordinator of one key."""
    found = FindCoordinatorResponse.Coordinator(key="", node_id=node_id, error_code=error_code)
    return FindCoordinatorResponse(coordinators=[found])
