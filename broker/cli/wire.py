"""A client of a cluster on `protocol.sync_client`, for the APIs that confluent-kafka does not offer.

It has one connection per broker and sends one request at a time, in the newest version that both sides support.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gregor.broker.cli.client import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    START_TIMEOUT_S,
    check_reachable,
    load_file,
    parse_bootstrap,
)
from gregor.broker.cli.client_security import channel_security
from gregor.broker.cli.errors import CommandError
from gregor.config.listeners import address_text
from gregor.protocol.client import UnsupportedVersion, newest_version, version_ranges
from gregor.protocol.client_security import handshake_failure
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.messages import ApiMessage, ApiVersionsRequest, MetadataRequest
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sync_client import ConnectionEnded, SyncConnection

if TYPE_CHECKING:
    from gregor.protocol.channel_security import ChannelSecurity


def known_code(code: int) -> ErrorCode:
    """Return an error code of a broker, UNKNOWN_SERVER_ERROR if it is newer than this command."""
    return ErrorCode(code) if code in ErrorCode.__members__.values() else ErrorCode.UNKNOWN_SERVER_ERROR


def error_name(code: int) -> str:
    """Return the name of an error code."""
    return known_code(code).name


class BrokerRefusal(CommandError):
    """The broker has returned an error code."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = known_code(code)
        text = (message or "the broker refused the request").rstrip(".")
        super().__init__(f"{text} ({self.code.name}).")


def check_code(code: int, message: str | None = None) -> None:
    """Raise BrokerRefusal unless the code is 0."""
    if code:
        raise BrokerRefusal(code, message)


class _Link:
    """A connection to one broker, with the API versions that the broker supports."""

    def __init__(self, host: str, port: int, client_id: str, security: ChannelSecurity) -> None:
        self.name = address_text(host, port)
        try:
            self._connection = SyncConnection(host, port, client_id, CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, security)
        except OSError as error:
            if security.tls_context is not None and (text := handshake_failure(error)) is not None:
                raise CommandError(f"cannot connect to the broker at {self.name}: {text}.") from None
            raise CommandError(
                f"cannot connect to the broker at {self.name}, its advertised address: {error.strerror or error}. "
                "`gregor doctor` checks the addresses of all brokers."
            ) from None
        try:
            self.versions = version_ranges(self.exchange(ApiVersionsRequest(), 0))
            self._guarded(lambda: self._connection.log_in(self.versions))
        except CommandError:
            self.close()
            raise
        sock = self._connection.socket
        self.peer = str(sock.getpeername()[0])
        self.certificate: Mapping[str, Any] = (sock.getpeercert() or {}) if isinstance(sock, ssl.SSLSocket) else {}

    def exchange(self, request: ApiMessage, version: int) -> Any:
        return self._guarded(lambda: self._connection.exchange(request, version))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (AuthenticationFailed, UnsupportedVersion) as error:
            raise CommandError(
                f"the broker at {self.name}: {error}. Correct sasl.mechanism and sasl.jaas.config of --command-config."
            ) from None
        except TimeoutError:
            raise CommandError(f"the broker at {self.name} did not answer within {REQUEST_TIMEOUT_S:.0f} s.") from None
        except ConnectionEnded:
            raise CommandError(f"the broker at {self.name} closed the connection; its log has the cause.") from None
        except OSError as error:
            # In TLS 1.3 the broker refuses a client's certificate behind the handshake.
            if (text := handshake_failure(error)) is not None:
                raise CommandError(f"cannot connect to the broker at {self.name}: {text}.") from None
            raise CommandError(
                f"the connection to the broker at {self.name} failed: {error.strerror or error}."
            ) from None
        except MalformedMessage as error:
            raise CommandError(f"{self.name} does not answer like a Kafka broker: {error}.") from None
        except ValueError as error:
            raise CommandError(
                f"a request cannot be sent to the broker at {self.name}: {error}. Correct the values of the command."
            ) from None

    def close(self) -> None:
        self._connection.close()


class WireClient:
    """The connections to the brokers of a cluster; a context manager."""

    def __init__(self, bootstrap: str, config_file: str | None = None, client_id: str = "gregor-admin") -> None:
        settings = load_file(config_file) if config_file else {}
        self._security = channel_security(settings)
        self._client_id = settings.get("client.id", client_id).strip()
        self._links: dict[int | None, _Link] = {}
        check_reachable(bootstrap, START_TIMEOUT_S)
        problem = CommandError("--bootstrap-server names no broker.")
        for host, port in parse_bootstrap(bootstrap):
            try:
                self._links[None] = _Link(host, port, self._client_id, self._security)
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
        """Fetch the metadata: the addresses of the `brokers` by id, and `controller_id`."""
        metadata = self.send(MetadataRequest(topics=[]))
        self.brokers = {node.node_id: (node.host, node.port) for node in metadata.brokers}
        self.controller_id: int = metadata.controller_id

    def send(self, request: ApiMessage, node_id: int | None = None) -> Any:
        """Send a request to a broker, by default the bootstrap broker; return the response or raise CommandError."""
        version = self.version(type(request), node_id)
        try:
            return self._link(node_id).exchange(request, version)
        except CommandError:
            # A response that arrives late must not be matched with the next request: this connection is not used again.
            if node_id is not None:
                self._links.pop(node_id).close()
            raise

    @property
    def peer(self) -> str:
        """Return the IP address of the bootstrap broker."""
        return self._link(None).peer

    def certificate(self, node_id: int) -> Mapping[str, Any]:
        """Return the certificate of a broker, as SSLSocket.getpeercert does; empty without TLS."""
        return self._link(node_id).certificate

    def version(self, kind: type[ApiMessage], node_id: int | None = None) -> int:
        """Return the version in which requests of this kind are sent; raise CommandError if there is none."""
        link = self._link(node_id)
        try:
            return newest_version(link.versions, kind)
        except UnsupportedVersion as error:
            name, theirs = error.api_name, error.offered
            if theirs is None:
                raise CommandError(
                    f"the broker at {link.name} does not support {name}, which this command needs."
                ) from None
            raise CommandError(
                f"the broker at {link.name} supports {name} in versions {theirs[0]} to {theirs[1]}, this command "
                f"needs one of {kind.MIN_VERSION} to {kind.MAX_VERSION}."
            ) from None

    def _link(self, node_id: int | None) -> _Link:
        link = self._links.get(node_id)
        if link is None:
            assert node_id is not None
            if node_id not in self.brokers:
                live = ", ".join(map(str, sorted(self.brokers)))
                raise CommandError(f"there is no broker {node_id}; live brokers: {live}.")
            link = self._links[node_id] = _Link(*self.brokers[node_id], self._client_id, self._security)
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
