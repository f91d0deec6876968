"""gregor.spark_jobs.client.connection: a refusal that comes behind the handshake."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.client.connection import BrokerConnection
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from tests.support.certificates import Certificates
from tests.support.refusing_server import refusing_server


def test_refused_certificate_is_reported_with_its_remedy(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with refusing_server(certificates) as port:
        options = {
            "kafka.bootstrap.servers": f"localhost:{port}",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": certificates.ca_file,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": certificates.file("stranger.pem", certificates.stranger.pem),
        }
        with pytest.raises(KafkaFailure, match="unknown ca.*does not trust the certificate of the client") as refused:
            BrokerConnection("127.0.0.1", port, ClientSettings.from_options(options))
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
