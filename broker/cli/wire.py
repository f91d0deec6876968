"""A client of a whole cluster on `protocol.sync_client`, for the APIs that confluent-kafka does not offer.

One connection to each broker it is asked to speak to, one request at a time, the newest version that both sides know.
It speaks to PLAINTEXT listeners only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from gregor.broker.cli.client import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    START_TIMEOUT_S,
    check_reachable,
    load_file,
    parse_bootstrap,
)
from gregor.broker.cli.errors import CommandError
from gregor.config.listeners import address_text
from gregor.protocol.client import UnsupportedVersion, newest_version, version_ranges
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.messages import ApiMessage, ApiVersionsRequest, MetadataRequest
from gregor.protocol.sync_client import ConnectionEnded, SyncConnection


class BrokerRefusal(CommandError):
    """A broker answered with an error code."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = ErrorCode(code) if code in ErrorCode.__members__.values() else ErrorCode.UNKNOWN_SERVER_ERROR
        text = (message or "the broker refused").rstrip(".")
        super().__init__(f"{text} ({self.code.name}).")


def check_code(code: int, message: str | None = None) -> None:
    """Raises BrokerRefusal unless the code is 0."""
    if code:
        raise BrokerRefusal(code, message)


class _Link:
    """A connection to one broker, and the versions that it offers."""

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self.name = address_text(host, port)
        try:
            self._connection = SyncConnection(host, port, client_id, CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S)
        except OSError as error:
            raise CommandError(
                f"cannot reach the broker at {self.name}, the address it advertises: {error.strerror or error}."
            ) from None
        try:
            self.versions = version_ranges(self.exchange(ApiVersionsRequest(), 0))
        except CommandError:
            self.close()
            raise
        self.peer = str(self._connection.socket.getpeername()[0])

    def exchange(self, request: ApiMessage, version: int) -> Any:
        try:
            return self._connection.exchange(request, version)
        except TimeoutError:
            raise CommandError(f"the broker at {self.name} did not answer within {REQUEST_TIMEOUT_S:.0f} s.") from None
        except ConnectionEnded:
            raise CommandError(f"the broker at {self.name} closed the connection; its log says why.") from None
        except OSError as error:
            raise CommandError(f"the connection to {self.name} broke: {error.strerror or error}.") from None
        except MalformedMessage as error:
            raise CommandError(f"{self.name} does not answer as a Kafka broker does: {error}.") from None

    def close(self) -> None:
        self._connection.close()


def check_protocol(settings: Mapping[str, str]) -> None:
    """Raises CommandError if a client with these settings would ask for more than this one can."""
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol != "PLAINTEXT":
        raise CommandError(f"this command speaks to PLAINTEXT listeners only, not security.protocol={protocol}.")


class WireClient:
    """Connects to a cluster; a context manager."""

    def __init__(self, bootstrap: str, config_file: str | None = None, client_id: str = "gregor-admin") -> None:
        settings = load_file(config_file) if config_file else {}
        check_protocol(settings)
        self._client_id = settings.get("client.id", client_id).strip()
        self._links: dict[int | None, _Link] = {}
        check_reachable(bootstrap, START_TIMEOUT_S)
        problem = CommandError("no broker to connect to.")
        for host, port in parse_bootstrap(bootstrap):
            try:
                self._links[None] = _Link(host, port, self._client_id)
                break
            except CommandError as error:
                problem = error
        else:
            raise problem
        try:
            self.refresh()
        except CommandError:
            self.close()
            raise

    def refresh(self) -> None:
        """Asks who is there: `brokers`, by id, and `controller_id`."""
        metadata = self.ask(MetadataRequest(topics=[]))
        self.brokers = {node.node_id: (node.host, node.port) for node in metadata.brokers}
        self.controller_id: int = metadata.controller_id

    def ask(self, request: ApiMessage, node_id: int | None = None) -> Any:
        """The answer of one broker, or of the one that was reached first. CommandError when there is none."""
        version = self.version(type(request), node_id)
        try:
            return self._link(node_id).exchange(request, version)
        except CommandError:
            # An answer that comes late would be taken for that to the next question: there is no next one on this link.
            if node_id is not None:
                self._links.pop(node_id).close()
            raise

    @property
    def peer(self) -> str:
        """The IP address of the broker that was reached first."""
        return self._link(None).peer

    def version(self, kind: type[ApiMessage], node_id: int | None = None) -> int:
        """In which version a request of this kind will go out. CommandError when there is none."""
        link = self._link(node_id)
        try:
            return newest_version(link.versions, kind)
        except UnsupportedVersion as error:
            name, theirs = error.api_name, error.offered
            if theirs is None:
                raise CommandError(
                    f"the broker at {link.name} does not offer {name}, which this command needs."
                ) from None
            raise CommandError(
                f"the broker at {link.name} offers {name} in versions {theirs[0]} to {theirs[1]}, this command knows "
                f"{kind.MIN_VERSION} to {kind.MAX_VERSION}."
            ) from None

    def _link(self, node_id: int | None) -> _Link:
        link = self._links.get(node_id)
        if link is None:
            assert node_id is not None
            if node_id not in self.brokers:
                live = ", ".join(map(str, sorted(self.brokers)))
                raise CommandError(f"there is no broker {node_id}; these live: {live}.")
            link = self._links[node_id] = _Link(*self.brokers[node_id], self._client_id)
        return link

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
