"""A broker with a listener for each way in which clients authenticate, and the settings of such clients."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support import web_tokens
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.processes import BrokerProcess

MODULES = "org.apache.kafka.common.security"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
USER = "alice"
ITERATIONS = 4096
WAIT_S = 60.0


def login(module: str, **options: str) -> str:
    """Return a JAAS entry."""
    given = "".join(f' {key}="{text}"' for key, text in options.items())
    return f"{MODULES}.{module} required{given};"


class SecuredBroker(BrokerProcess):
    """Listeners: PLAINTEXT for the test's own use; SASL_SSL with all mechanisms; UNSIGNED, which is SASL_SSL with
    unsecured tokens; and SSL, which requires certificates of clients. The secrets are in a file, so that they are no
    arguments of the process."""

    def __init__(
        self,
        folder: Path,
        certificates: Certificates,
        passwords: dict[str, str],
        settings: dict[str, str] | None = None,
    ) -> None:
        """`passwords` are those of the users of PLAIN; "broker" is among them."""
        ports = {name: free_port() for name in ("SASL_SSL", "UNSIGNED", "SSL")}
        self.ports = ports
        port = free_port()
        listeners = ",".join(f"{name}://localhost:{number}" for name, number in ports.items())
        super().__init__(folder, {"listeners": f"PLAINTEXT://127.0.0.1:{port},{listeners}"}, port)
        keys = folder / "jwks.json"
        folder.mkdir(parents=True, exist_ok=True)
        keys.write_bytes(web_tokens.key_set("r"))
        users = {f"user_{name}": password for name, password in passwords.items()}
        given = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,UNSIGNED:SASL_SSL,SSL:SSL",
            **certificates.broker_settings,
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login(
                "plain.PlainLoginModule", username="broker", password=passwords["broker"], **users
            ),
            "sasl.oauthbearer.expected.audience": "gregor",
            "listener.name.sasl_ssl.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "listener.name.unsigned.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.unsigned.oauthbearer.sasl.jaas.config": login(
                "oauthbearer.OAuthBearerLoginModule", unsecuredValidatorPrincipalClaimName="sub"
            ),
            **(settings or {}),
        }
        self.file = folder / "server.properties"
        self.file.write_text("".join(f"{key}={text}\n" for key, text in given.items()))
        self.file.chmod(0o600)

    def address(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    def add_scram_user(self, name: str, passwords: dict[str, str]) -> None:
        """Store credentials; `passwords` are by mechanism."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        changes = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(SCRAM[mechanism], ITERATIONS), password.encode())
            for mechanism, password in passwords.items()
        ]
        admin.alter_user_scram_credentials(changes)[name].result(WAIT_S)

    def add_topics(self, names: Iterable[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(WAIT_S)

    def allow(self, user: str, prefix: str, *more: AclOperation) -> None:
        """Add rules: the user reads and writes topics, and reads as groups, whose names begin with the prefix; `more`
        are further operations on the topics."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        wanted = (
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.GROUP, AclOperation.READ),
            *((ResourceType.TOPIC, operation) for operation in more),
        )
        rules = [
            AclBinding(
                kind, prefix, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, AclPermissionType.ALLOW
            )
            for kind, operation in wanted
        ]
        for made in admin.create_acls(rules).values():
            made.result(WAIT_S)


def signed_token(user: str = USER, lifetime_s: int = 3600, audience: str = "gregor") -> str:
    """Return a token that the listener SASL_SSL accepts, if it is for its audience."""
    now_s = int(time.time())
    claims = {"sub": user, "iat": now_s, "exp": now_s + lifetime_s, "aud": audience, "scope": "kafka"}
    return web_tokens.token("RS256", claims)


def unsigned_token(user: str = USER, lifetime_s: int = 3600) -> str:
    """Return a token that the listener UNSIGNED accepts."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + lifetime_s})
    return ".".join(web_tokens.text_of(json.dumps(part).encode()) for part in parts) + "."
