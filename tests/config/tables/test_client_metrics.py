"""Settings of client metrics subscriptions: the values that Apache Kafka 4.3.1 accepts and refuses, and its errors."""

from __future__ import annotations

import pytest

from gregor.config.definitions import ConfigError
from gregor.config.tables.client_metrics import UnknownClientMetricsKey, check_client_metrics


@pytest.mark.parametrize(
    "texts",
    [{}, {"interval.ms": "100"}, {"metrics": "*"}, {"metrics": ""}, {"match": "client_id=a.*, client_source_port=1"}],
)
def test_taken(texts: dict[str, str]) -> None:
    check_client_metrics(texts)


@pytest.mark.parametrize(
    ("texts", "unknown"),
    [
        ({"no.such": "x"}, True),
        ({"interval.ms": "99"}, True),
        ({"interval.ms": "3600001"}, True),
        ({"interval.ms": "x"}, False),
        ({"interval.ms": "9999999999"}, False),
        ({"match": "nonsense"}, False),
        ({"match": "no_such=x"}, False),
        ({"match": "client_id=["}, False),
        ({"match": "client_id=a{99999999999}"}, False),
        ({"match": "client_id=" + "(" * 5000}, False),
        ({"match": "client_id=a{" + "9" * 5000 + "}"}, False),
        ({"match": "client_id=a=b"}, False),
    ],
)
def test_refused(texts: dict[str, str], unknown: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        check_client_metrics(texts)
    assert isinstance(caught.value, UnknownClientMetricsKey) is unknown
