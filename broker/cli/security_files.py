"""The settings that `gregor security init` writes: of a broker with SASL_SSL and access control, and of its clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gregor.config.listeners import address_text
from gregor.config.security.password_encoder import SECRET

BROKER_USER = "broker"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def broker_settings(
    home: Path, host: str, port: int, passwords: Mapping[str, str], admin: str, encoder_secret: str
) -> str:
    """Return the properties file of a broker; `passwords` has those of all users by name. `encoder_secret` encrypts the
    passwords of dynamic settings; of letters, digits, '-' and '_', as the other ones."""
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    login = f'{_MODULE} required username="{BROKER_USER}" password="{passwords[BROKER_USER]}" {users};'
    return f"""\
listeners=SASL_SSL://{address_text(host, port)}
security.inter.broker.protocol=SASL_SSL
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={login}
ssl.keystore.type=PEM
ssl.keystore.location={home}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={home}/ca.pem
# Clients that present a certificate of this authority: ssl.client.auth=required for this listener.
# listener.name.sasl_ssl.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{BROKER_USER};User:{admin}
# Encrypts the passwords and private keys of dynamic settings in the metadata store. Without it they cannot be read.
{SECRET}={encoder_secret}
"""


def client_files(home: Path, host: str, port: int, user: str, password: str) -> dict[str, str]:
    """Return the files of a user, by name. Java, Spark and gregor's commands read client.properties."""
    bootstrap, ca = address_text(host, port), f"{home}/ca.pem"
    return {
        "client.properties": f"""\
bootstrap.servers={bootstrap}
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={_MODULE} required username="{user}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={ca}
""",
        "librdkafka.properties": f"""\
# For kcat: kcat -F {home}/{user}/librdkafka.properties -L
bootstrap.servers={bootstrap}
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username={user}
sasl.password={password}
ssl.ca.location={ca}
""",
        "kafka_python.py": f"""\
from kafka import KafkaProducer

producer = KafkaProducer(
    bootstrap_servers="{bootstrap}",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    sasl_plain_username="{user}",
    sasl_plain_password="{password}",
    ssl_cafile="{ca}",
)
""",
        "franz.go": _go_client(bootstrap, ca, user, password),
        "spark.py": f"""\
from gregor.config.properties import load_properties

# For format("gregor") and for Spark's own connector, format("kafka"): spark.read.format(...).options(**OPTIONS)
OPTIONS = {{f"kafka.{{key}}": text for key, text in load_properties("{home}/{user}/client.properties").items()}}
""",
    }


def _go_client(bootstrap: str, ca: str, user: str, password: str) -> str:
    return f"""\
package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

func newClient() (*kgo.Client, error) {{
	ca, err := os.ReadFile("{ca}")
	if err != nil {{
		return nil, err
	}}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return kgo.NewClient(
		kgo.SeedBrokers("{bootstrap}"),
		kgo.DialTLSConfig(&tls.Config{{RootCAs: roots}}),
		kgo.SASL(plain.Auth{{User: "{user}", Pass: "{password}"}}.AsMechanism()),
	)
}}
"""
