"""A listener of SASL_SSL with SCRAM on each broker of a cluster, and the settings of its brokers and clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.protocol.client import version_ranges
from gregor.protocol.client_security import security_of_client
from gregor.protocol.messages import ApiVersionsRequest
from gregor.protocol.sync_client import SyncConnection
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.secured_broker import login

MECHANISM = "SCRAM-SHA-512"
WAIT_S = 120.0
"""For a response, on a busy machine."""


class SecureListeners:
    """Listeners named SECURE on ports of their own. The user of the brokers is `broker`."""

    BETWEEN_BROKERS: Mapping[str, str] = {
        "inter.broker.listener.name": "SECURE",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
    }

    def __init__(self, certificates: Certificates, broker_ids: Iterable[int], passwords: Mapping[str, str]) -> None:
        self.certificates = certificates
        self.ports = {broker_id: free_port() for broker_id in broker_ids}
        self._passwords = passwords

    @property
    def settings(self) -> dict[str, str]:
        """The settings of every broker that has this listener beside or instead of PLAINTEXT."""
        entry = login("scram.ScramLoginModule", username="broker", password=self._passwords["broker"])
        return {
            **self.certificates.broker_settings,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.secure.scram-sha-512.sasl.jaas.config": entry,
        }

    def address(self, broker_id: int) -> str:
        return f"SECURE://localhost:{self.ports[broker_id]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{port}" for port in self.ports.values())

    def client(self, user: str, password: str | None = None) -> dict[str, str]:
        """Return the settings of librdkafka; without a password it is the user's first one."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.certificates.ca_file,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password or self._passwords[user],
        }

    def connect(self, broker_id: int, user: str) -> SyncConnection:
        """Return a connection that is authenticated. Raises AuthenticationFailed."""
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.ca_file,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login("scram.ScramLoginModule", username=user, password=self._passwords[user]),
        }
        security = security_of_client(settings)
        connection = SyncConnection("localhost", self.ports[broker_id], "test", WAIT_S, WAIT_S, security)
        try:
            connection.log_in(version_ranges(connection.exchange(ApiVersionsRequest(), 0)))
        except BaseException:
            connection.close()
            raise
        return connection
