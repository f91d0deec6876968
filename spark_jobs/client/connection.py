"""A connection to one broker: protocol.sync_client with the versions of the broker, and errors that name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gregor.config.listeners import address_text
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.client import UnsupportedVersion, version_ranges
from gregor.protocol.client_security import handshake_failure
from gregor.protocol.errors import ErrorCode, MalformedMessage
from gregor.protocol.messages import ApiMessage
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sync_client import ConnectionEnded, SyncConnection
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.installation import installed_gregor

SOFTWARE_NAME = "gregor"
TRANSACTION_VERSION = "transaction.version"


class BrokerConnection:
    """A connection to one broker. After a failure of `exchange` it must not be used any more."""

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        """Connect; raise KafkaFailure with the code NETWORK_EXCEPTION or UNSUPPORTED_VERSION."""
        self.name = address_text(host, port)
        self._timeout_ms = settings.request_timeout_ms
        try:
            self._connection = SyncConnection(
                host,
                port,
                settings.client_id,
                settings.connect_timeout_ms / 1000,
                settings.request_timeout_ms / 1000,
                settings.security,
            )
        except OSError as error:
            if settings.security.tls_context is not None and (text := handshake_failure(error)) is not None:
                raise KafkaFailure(
                    ErrorCode.SASL_AUTHENTICATION_FAILED, f"no connection to the broker at {self.name}: {text}"
                ) from None
            raise KafkaFailure(
                ErrorCode.NETWORK_EXCEPTION,
                f"no connection to the broker at {self.name}: {(error.strerror or str(error)).lower()}",
            ) from None
        try:
            offered = self._guarded(self._connection.api_versions, SOFTWARE_NAME, installed_gregor() or "unknown")
            self.versions = version_ranges(offered)
            self._guarded(self._connection.log_in, self.versions)
        except KafkaFailure:
            self.close()
            raise
        self.features: Mapping[str, int] = {one.name: one.max_version_level for one in offered.finalized_features}
        """By the name of a feature its level in force."""

    def version(self, api_key: int, highest: int, lowest: int = 0) -> int:
        """Return the highest version from `lowest` to `highest` that the broker serves."""
        offered = self.versions.get(api_key)
        name = ApiKey(api_key).name
        if offered is None:
            raise KafkaFailure(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.name} does not serve {name}; Apache Kafka 0.11 and later are supported",
            )
        version = min(offered[1], highest)
        if version < max(offered[0], lowest):
            raise KafkaFailure(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.name} serves {name} in versions {offered[0]} to {offered[1]}, needed is one of "
                f"{lowest} to {highest}; Apache Kafka 0.11 to 4.4 are supported",
            )
        return version

    def exchange(self, request: ApiMessage, version: int) -> Any:
        """Send a request and return its response."""
        return self._guarded(self._connection.exchange, request, version)

    def send(self, request: ApiMessage, version: int) -> None:
        """Send a request; `receive` returns the responses in the order of the requests."""
        self._guarded(self._connection.send, request, version)

    def receive(self) -> Any:
        """Return the response of the oldest request that was sent."""
        _, message = self._guarded(self._connection.receive)
        return message

    def close(self) -> None:
        self._connection.close()

    def _guarded(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except TimeoutError:
            text = f"the broker at {self.name} did not respond within {self._timeout_ms / 1000:g} s"
        except ConnectionEnded:
            text = f"the broker at {self.name} closed the connection; its log has the cause"
        except (AuthenticationFailed, UnsupportedVersion) as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            raise KafkaFailure(code, f"the broker at {self.name}: {error}") from None
        except MalformedMessage as error:
            text = f"the server at {self.name} does not respond as a Kafka broker does: {error}"
            raise KafkaFailure(ErrorCode.UNKNOWN_SERVER_ERROR, text) from None
        except OSError as error:
            # In TLS 1.3 the broker refuses a client's certificate behind the handshake.
            if (reason := handshake_failure(error)) is not None:
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                raise KafkaFailure(code, f"no connection to the broker at {self.name}: {reason}") from None
            text = f"the connection to the broker at {self.name} failed: {(error.strerror or str(error)).lower()}"
        raise KafkaFailure(ErrorCode.NETWORK_EXCEPTION, text) from None
