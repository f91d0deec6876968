"""Spark on a secured broker, by each mechanism: the connector writes, and both sources read; a wrong secret is refused.
So do they with the settings that `gregor security init` makes for Spark.

Rules allow each user the topic of its mechanism by the name of its principal, and all else is denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gregor.spark_jobs.sources import read_topic
from tests.support.certificates import Certificates
from tests.support.initialised_broker import TOPIC, USER, InitialisedBroker
from tests.support.secured_broker import SecuredBroker, login, signed_token

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

PASSWORDS = {"broker": "not-for-any-log-1", "paul": "not-for-any-log-2"}
SCRAM = {"SCRAM-SHA-256": "not-for-any-log-3", "SCRAM-SHA-512": "not-for-any-log-4"}
USERS = {
    "SSL": "CN=alice,O=Tests",
    "PLAIN": "paul",
    "SCRAM-SHA-256": "sara",
    "SCRAM-SHA-512": "simon",
    "OAUTHBEARER": "olga",
}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SECRETS = (*PASSWORDS.values(), *SCRAM.values())
INVALID_SCRAM = "due to invalid credentials with SASL mechanism SCRAM-SHA-"
REFUSALS = {
    "SSL": "SslAuthenticationException|unknown ca",
    "PLAIN": "Authentication failed: Invalid username or password",
    "SCRAM-SHA-256": f"{INVALID_SCRAM}256",
    "SCRAM-SHA-512": f"{INVALID_SCRAM}512",
    "OAUTHBEARER": "invalid_token",
}
SOURCES = ("kafka", "gregor")
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ROWS = 5
QUICK = {"kafka.request.timeout.ms": "10000", "kafka.default.api.timeout.ms": "15000"}
"""Of clients that are refused: Java's retries while a refusal may still be a lost connection. A first exchange that
lasts longer, in a JVM that still loads its classes, ends in an error without the reason."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), certificates, PASSWORDS, SETTINGS) as broker:
        broker.add_topics(USERS)
        for mechanism, user in USERS.items():
            broker.allow(user, mechanism)
            broker.allow(user, "spark-kafka-")  # the connector's own groups
        for mechanism, password in SCRAM.items():
            broker.add_scram_user(USERS[mechanism], {mechanism: password})
        yield broker


def options_of(
    mechanism: str, folder: Path, broker: SecuredBroker, certificates: Certificates, *, wrong: bool = False
) -> dict[str, str]:
    user = USERS[mechanism]
    given = {
        "kafka.bootstrap.servers": broker.address("SSL" if mechanism == "SSL" else "SASL_SSL"),
        "kafka.security.protocol": "SSL" if mechanism == "SSL" else "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": certificates.ca_file,
    }
    if mechanism == "SSL":
        identity = certificates.stranger if wrong else certificates.alice
        file = folder / ("wrong" if wrong else "right")
        file.write_text(identity.pem)
        return {**given, "kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": str(file)}
    if mechanism == "OAUTHBEARER":
        token = folder / ("wrong" if wrong else "right")
        token.write_text(signed_token(user, audience="x" if wrong else "gregor"))
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        entry = login("oauthbearer.OAuthBearerLoginModule")
        given |= {
            "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            "kafka.sasl.login.callback.handler.class": handler,
        }
    elif mechanism == "PLAIN":
        entry = login("plain.PlainLoginModule", username=user, password="wrong" if wrong else PASSWORDS[user])
    else:
        entry = login("scram.ScramLoginModule", username=user, password="wrong" if wrong else SCRAM[mechanism])
    return {**given, "kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": entry}


@pytest.mark.by_day(2)
@pytest.mark.parametrize("mechanism", USERS)
def test_rows_are_written_and_read_and_a_wrong_secret_is_refused(
    spark: SparkSession, secured: SecuredBroker, certificates: Certificates, tmp_path: Path, mechanism: str
) -> None:
    options = options_of(mechanism, tmp_path, secured, certificates)
    wrong = QUICK | options_of(mechanism, tmp_path, secured, certificates, wrong=True)
    bootstrap = options["kafka.bootstrap.servers"]
    if mechanism == "OAUTHBEARER":
        urls = [given["kafka.sasl.oauthbearer.token.endpoint.url"] for given in (options, wrong)]
        jvm = spark._jvm
        assert jvm is not None
        jvm.java.lang.System.setProperty(ALLOWED_URLS, ",".join(urls))
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    rows.coalesce(1).write.format("kafka").options(**options).option("topic", mechanism).save()
    for source in SOURCES:
        found = read_topic(spark, bootstrap, mechanism, options, source).selectExpr("CAST(value AS STRING)").collect()
        assert [row.value for row in found] == [str(number) for number in range(ROWS)]
    for source in SOURCES:
        with pytest.raises((PySparkException, Py4JJavaError)) as refused:
            read_topic(spark, bootstrap, mechanism, wrong, source).collect()
        said = f"{refused.value} {getattr(refused.value, 'java_exception', '')}"
        assert re.search(REFUSALS[mechanism], said), said
        assert not any(secret in said for secret in SECRETS)


def test_rows_are_written_and_read_with_the_file_of_security_init(spark: SparkSession, tmp_path: Path) -> None:
    with InitialisedBroker(tmp_path) as broker:
        names: dict[str, Any] = {}
        exec((broker.files / USER / "spark.py").read_text(), names)
        options: dict[str, str] = names["OPTIONS"]
        rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
        rows.coalesce(1).write.format("kafka").options(**options).option("topic", TOPIC).save()
        for source in SOURCES:
            read = spark.read.format(source).options(**options).option("subscribe", TOPIC).load()
            found = [row.value for row in read.selectExpr("CAST(value AS STRING)").collect()]
            assert found == [str(number) for number in range(ROWS)], source
        assert options["kafka.sasl.jaas.config"].partition("password=")[2].strip('";') not in broker.broker.log()
