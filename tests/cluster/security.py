"""The security of a run: the listeners of its brokers, the settings of each user, the rules, and who sees what.

With SASL_SSL, brokers and clients authenticate by SCRAM over TLS, and each user has the rules that its work needs; one
user has none.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient

from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.client_security import security_of_client
from gregor.protocol.sasl.scram import MECHANISMS, format_credential, new_credential
from tests.support.certificates import Certificates

PLAINTEXT, SASL_SSL = "PLAINTEXT", "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SASL_SSL)
MECHANISM = "SCRAM-SHA-512"
BROKER, ADMIN, PRODUCER, CONSUMER, STRANGER = USERS = ("broker", "admin", "producer", "consumer", "stranger")
"""The brokers and the run itself may do everything; the stranger has a password, and no rule."""
PASSWORDS = {user: f"only-of-this-run-{user}" for user in USERS}
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_REFUSED = re.compile(
    r"AUTHORIZATION_FAILED|AuthorizationException|[Nn]ot authorized|authorization failed"
    r"|_AUTHENTICATION|AuthenticationException|[Aa]uthentication failed"
    r"|certificate verify failed|certificate could not be verified|SSLHandshakeException"
)
"""In the output of a client: a broker has refused it, or the client the broker's certificate."""

_ENDED = re.compile("terminated during authentication|Local: (?:Broker transport failure|Timed out)")
"""In a line about a lost connection: Java lists refusals among the reasons, and librdkafka has one as its code."""


class Security:
    """`protocol` is that of all listeners; `hosts` are the addresses of the brokers, which a certificate names."""

    def __init__(self, protocol: str, folder: pathlib.Path, hosts: Iterable[str]) -> None:
        self.protocol = protocol
        self.is_on = protocol == SASL_SSL
        self._connections: dict[str, ChannelSecurity] = {}
        if self.is_on:
            folder.mkdir(parents=True, exist_ok=True)
            self._certificates = Certificates(folder)
            identity = self._certificates.authority.issue("brokers", [*hosts])
            self._key_file = self._certificates.file("brokers.pem", identity.pem)

    def broker_settings(self) -> dict[str, object]:
        """Return the settings of each broker, without its listeners."""
        if not self.is_on:
            return {}
        return {
            "security.inter.broker.protocol": SASL_SSL,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _login(BROKER),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._key_file,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._certificates.ca_file,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER};User:{ADMIN}",
        }

    def librdkafka(self, user: str) -> dict[str, Any]:
        if not self.is_on:
            return {}
        return {
            "security.protocol": SASL_SSL,
            "ssl.ca.location": self._certificates.ca_file,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def java(self, user: str) -> dict[str, object]:
        if not self.is_on:
            return {}
        return {
            "security.protocol": SASL_SSL,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._certificates.ca_file,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _login(user),
        }

    def connection(self, user: str) -> ChannelSecurity:
        """Return the security of a connection of this process."""
        if not self.is_on:
            return PLAINTEXT_CHANNEL
        if user not in self._connections:
            self._connections[user] = security_of_client({key: str(text) for key, text in self.java(user).items()})
        return self._connections[user]

    def store_users(self, nodes: KazooClient) -> None:
        """Write the credentials of all users, as Apache Kafka's tool does before the first broker starts."""
        if not self.is_on:
            return
        for user, password in PASSWORDS.items():
            credential = format_credential(new_credential(MECHANISMS[MECHANISM], password))
            nodes.create(
                f"/config/users/{user}",
                json.dumps({"version": 1, "config": {MECHANISM: credential}}).encode(),
                makepath=True,
            )

    def rules(self, topic: str, groups: Iterable[str]) -> list[AclBinding]:
        """Return the rules of the producers and of the members of the groups."""
        if not self.is_on:
            return []
        wanted = [
            (PRODUCER, ResourceType.TOPIC, topic, AclOperation.WRITE),
            (CONSUMER, ResourceType.TOPIC, topic, AclOperation.READ),
            *((CONSUMER, ResourceType.GROUP, group, AclOperation.READ) for group in groups),
        ]
        return [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for user, kind, name, operation in wanted
        ]


def _login(user: str) -> str:
    return f'{_MODULE} required username="{user}" password="{PASSWORDS[user]}";'


def refusals(outputs: Mapping[str, str]) -> list[str]:
    """Return a violation for each client, by name, whose output shows that a broker has refused it: all have passwords
    and rules, whatever is broken."""
    found = []
    for name, output in outputs.items():
        lines = [line for line in output.splitlines() if _REFUSED.search(line) and not _ENDED.search(line)]
        if lines:
            found.append(f"{name} was refused {len(lines)} times, first: {lines[0][:300]}")
    return found


def leaked(outputs: Mapping[str, str]) -> list[str]:
    """Return a violation for each password that a server, by name, has printed."""
    return [
        f"{name} has printed the password of {user}"
        for name, output in outputs.items()
        for user, password in PASSWORDS.items()
        if password in output
    ]
