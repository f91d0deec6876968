"""The settings that `gregor security init` writes: of a broker with SASL_SSL and access control, and of its clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gregor.config.listeners import address_text
from gregor.config.properties import escape_value
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
ssl.keystore.location={escape_value(f"{home}/broker.pem")}
ssl.truststore.type=PEM
ssl.truststore.location={escape_value(f"{home}/ca.pem")}
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
    settings = _literal(f"{home}/{user}/client.properties")
    return {
        "client.properties": f"""\
bootstrap.servers={bootstrap}
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={_MODULE} required username="{user}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={escape_value(ca)}
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
    ssl_cafile={_literal(ca)},
)
""",
        "franz.go": _go_client(bootstrap, ca, user, password),
        "spark.py": f"""\
from gregor.config.properties import load_properties

# For format("gregor") and for Spark's own connector, format("kafka"): spark.read.format(...).options(**OPTIONS)
OPTIONS = {{f"kafka.{{key}}": text for key, text in load_properties({settings}).items()}}
""",
    }


def _literal(text: str) -> str:
    """Return a text in double quotes, as a program in Python or Go has it."""
    return json.dumps(text, ensure_ascii=False)


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
	ca, err := os.ReadFile({_literal(ca)})
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
