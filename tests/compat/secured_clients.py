"""Round trips of clients on a secured broker: each writes three records to a topic and reads them back.

A case is one way to authenticate. A client runs all of its cases in one program and returns, by the name of the case,
`PASS` or the client's own error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import aiokafka.errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.compat.kafka_python_import import kafka
from tests.support.certificates import PASSWORD
from tests.support.foreign_clients import NODE_SOURCES, go_program, node_modules, or_skip, run_checks
from tests.support.kafka import java_command, kafka_jars
from tests.support.processes import ROOT
from tests.support.secured_broker import login

TLS, PLAIN, OAUTHBEARER, TOKEN = "TLS", "PLAIN", "OAUTHBEARER", "token"
SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
LIMIT_S = 30.0
REFUSED_S = 10.0
RECORDS = 3
COMPILED_AGAINST = "0.10.2.2"


class Case(NamedTuple):
    """`secret` is a password or, of OAUTHBEARER, a token; of TLS the authority whose client's certificate is shown.
    `identity` is a PEM file with a key and its certificates, and `store` the same as PKCS12."""

    name: str
    mechanism: str
    bootstrap: str
    topic: str
    user: str
    secret: str
    authority: str
    trust_store: str
    identity: str = ""
    store: str = ""
    refused: bool = False

    @property
    def protocol(self) -> str:
        return "SSL" if self.mechanism == TLS else "SASL_SSL"

    @property
    def sasl(self) -> str | None:
        """The SASL mechanism."""
        return None if self.mechanism == TLS else SCRAM_256 if self.mechanism == TOKEN else self.mechanism

    @property
    def values(self) -> list[bytes]:
        return [f"{self.name}-{number}".encode() for number in range(RECORDS)]

    @property
    def limit_s(self) -> float:
        return REFUSED_S if self.refused else LIMIT_S


class Lines(logging.Handler):
    """The warnings of a client of Python: two of them log why a connection fails, and raise that there is none."""

    def __init__(self, logger: str) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger(logger)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> Lines:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        self._logger.removeHandler(self)


def _each(run: Callable[[Case], None], cases: Sequence[Case], logger: str, *errors: type[Exception]) -> dict[str, str]:
    found = {"": ""}
    for case in cases:
        with Lines(logger) as logged:
            try:
                run(case)
                found[case.name] = "PASS"
            except errors as error:
                found[case.name] = "; ".join([f"{type(error).__name__}: {error}", *logged.lines])
    return found


# -- Python ----------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """An error that librdkafka reports by its callback."""


def librdkafka(cases: Sequence[Case], folder: pathlib.Path) -> dict[str, str]:
    return _each(_librdkafka, cases, "librdkafka", Refused, KafkaException)


def _librdkafka(case: Case) -> None:
    errors: list[KafkaError] = []
    config: dict[str, Any] = {
        "bootstrap.servers": case.bootstrap,
        "security.protocol": case.protocol,
        "ssl.ca.location": case.authority,
        "log_level": 0,
        "error_cb": errors.append,
    }
    if case.identity:
        config |= {"ssl.key.location": case.identity, "ssl.certificate.location": case.identity}
    if case.sasl is not None:
        config["sasl.mechanism"] = case.sasl
    if case.mechanism == OAUTHBEARER:
        config["oauth_cb"] = lambda _: (case.secret, time.time() + 3600)
    elif case.sasl is not None:
        config |= {"sasl.username": case.user, "sasl.password": case.secret}
    producer = Producer(config)
    for value in case.values:
        producer.produce(case.topic, value, partition=0)
    deadline = time.monotonic() + case.limit_s
    while producer.flush(0.05) and not errors and time.monotonic() < deadline:
        pass
    if errors:
        raise Refused("; ".join(str(error) for error in errors))
    consumer = Consumer({**config, "group.id": case.topic})
    try:
        consumer.assign([TopicPartition(case.topic, 0, 0)])
        messages = consumer.consume(RECORDS, LIMIT_S)
    finally:
        consumer.close()
    assert [message.value() for message in messages] == case.values, errors


def _python_settings(case: Case) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=case.authority)
    if case.identity:
        context.load_cert_chain(case.identity)
    given: dict[str, Any] = {"bootstrap_servers": case.bootstrap, "security_protocol": case.protocol}
    if case.sasl is not None:
        given["sasl_mechanism"] = case.sasl
    if case.sasl not in (None, OAUTHBEARER):
        given |= {"sasl_plain_username": case.user, "sasl_plain_password": case.secret}
    return {**given, "ssl_context": context}


def kafka_python(cases: Sequence[Case], folder: pathlib.Path) -> dict[str, str]:
    return _each(_kafka_python, cases, "kafka", kafka.errors.KafkaError)


def _kafka_python(case: Case) -> None:
    class Token(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return case.secret

    given = _python_settings(case)
    if case.sasl == OAUTHBEARER:
        given["sasl_oauth_token_provider"] = Token()
    producer = kafka.KafkaProducer(
        **given, max_block_ms=int(1000 * case.limit_s), bootstrap_timeout_ms=5_000 if case.refused else 30_000
    )
    try:
        for sent in [producer.send(case.topic, value, partition=0) for value in case.values]:
            sent.get(LIMIT_S)
    finally:
        producer.close(timeout=1)
    timeout_ms = int(1000 * LIMIT_S)
    consumer = kafka.KafkaConsumer(**given, group_id=case.topic, consumer_timeout_ms=timeout_ms)
    try:
        part = kafka.TopicPartition(case.topic, 0)
        consumer.assign([part])
        consumer.seek(part, 0)
        assert [next(consumer).value for _ in range(RECORDS)] == case.values
    finally:
        consumer.close()


def aiokafka_client(cases: Sequence[Case], folder: pathlib.Path) -> dict[str, str]:
    return _each(lambda case: asyncio.run(_aiokafka(case)), cases, "aiokafka", aiokafka.errors.KafkaError)


async def _aiokafka(case: Case) -> None:
    class Token(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return case.secret

    given = _python_settings(case)
    if case.sasl == OAUTHBEARER:
        given["sasl_oauth_token_provider"] = Token()
    async with asyncio.timeout(2 * LIMIT_S):
        producer = aiokafka.AIOKafkaProducer(**given)
        try:
            await producer.start()
            for value in case.values:
                await producer.send_and_wait(case.topic, value, partition=0)
        finally:
            await producer.stop()
        async with aiokafka.AIOKafkaConsumer(**given, group_id=None) as consumer:
            part = aiokafka.TopicPartition(case.topic, 0)
            consumer.assign([part])
            consumer.seek(part, 0)
            assert [(await consumer.getone()).value for _ in range(RECORDS)] == case.values


# -- Go and Node -----------------------------------------------------------------------------------------------------


def _written(cases: Sequence[Case], folder: pathlib.Path) -> str:
    """Write the cases as go/secured/main.go reads them."""
    file = folder / "cases.json"
    given = [
        {
            "Name": case.name,
            "Bootstrap": case.bootstrap,
            "Topic": case.topic,
            "Mechanism": case.mechanism,
            "User": case.user,
            "Secret": case.secret,
            "CA": case.authority,
            "Identity": case.identity,
            "Refused": case.refused,
        }
        for case in cases
    ]
    file.write_text(json.dumps(given))
    return str(file)


def franz_go(cases: Sequence[Case], folder: pathlib.Path) -> dict[str, str]:
    return run_checks([str(or_skip(go_program, "secured")), "franz", _written(cases, folder)])


def sarama(cases: Sequence[Case], folder: pathlib.Path) -> dict[str, str]:
    return run_checks([str(or_skip(go_program, "secured")), "sarama", _written(cases, folder)])


def kafkajs(cases: Sequence[Case], folder: pathlib.Path) -> dict[str, str]:
    environment = {**os.environ, "NODE_PATH": str(or_skip(node_modules)), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return run_checks(["node", str(NODE_SOURCES / "secured.js"), _written(cases, folder)], environment)


# -- Java ------------------------------------------------------------------------------------------------------------


def java_settings(case: Case, folder: pathlib.Path) -> dict[str, str]:
    """Return the settings of a Java client; a token of OAUTHBEARER is written below the folder."""
    given = {
        "bootstrap.servers": case.bootstrap,
        "security.protocol": case.protocol,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": case.trust_store,
        "ssl.truststore.password": PASSWORD,
    }
    if case.store:
        given |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": case.store,
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        }
    if case.sasl is not None:
        given |= {"sasl.mechanism": case.sasl, "sasl.jaas.config": _jaas(case)}
    if case.mechanism == OAUTHBEARER:
        token = folder / f"{case.name}.token"
        token.write_text(case.secret)
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        given |= {"sasl.oauthbearer.token.endpoint.url": token.as_uri(), "sasl.login.callback.handler.class": handler}
    return given


def _jaas(case: Case) -> str:
    if case.mechanism == OAUTHBEARER:
        return login("oauthbearer.OAuthBearerLoginModule")
    if case.mechanism == PLAIN:
        return login("plain.PlainLoginModule", username=case.user, password=case.secret)
    more = {"tokenauth": "true"} if case.mechanism == TOKEN else {}
    return login("scram.ScramLoginModule", username=case.user, password=case.secret, **more)


def properties_text(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={text}\n" for key, text in settings.items())


def java(version: str) -> Callable[[Sequence[Case], pathlib.Path], dict[str, str]]:
    """Return a runner of old_java/SecuredChecks.java with the jars of a release."""

    def run(cases: Sequence[Case], folder: pathlib.Path) -> dict[str, str]:
        files, classes = folder / "cases", folder / "classes"
        for made in (files, classes):
            made.mkdir()
        for case in cases:
            settings = {**java_settings(case, folder), "test.topic": case.topic}
            if case.refused and version == COMPILED_AGAINST:
                settings["max.block.ms"] = "1500"  # it has no error of authentication, and retries until then
            (files / f"{case.name}.properties").write_text(properties_text(settings))
        source = ROOT / "tests/compat/old_java/SecuredChecks.java"
        libraries = f"{kafka_jars(COMPILED_AGAINST)}/*"
        flags = ("-Xlint:-options", "--release", "8", "-proc:none", "-cp", libraries, "-d", str(classes))
        done = subprocess.run(["javac", *flags, str(source)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        command = java_command("compat.SecuredChecks", str(files), version=version)
        # Its SCRAM needs javax.xml.bind, which Java has no longer.
        bind = [f"{kafka_jars('3.9.1')}/jaxb-api-2.3.1.jar"] if version == COMPILED_AGAINST else []
        command[command.index("-cp") + 1] += "".join(f"{os.pathsep}{path}" for path in (str(classes), *bind))
        tokens = ",".join(path.as_uri() for path in folder.glob("*.token"))
        command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens}")
        return run_checks(command)

    return run
