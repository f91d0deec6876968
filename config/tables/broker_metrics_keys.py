"""The settings of the metrics, which are gregor's own: Apache Kafka has its metrics in JMX."""

from __future__ import annotations

from gregor.config.definitions import INTERNAL, ConfigDef
from gregor.config.listeners import Listener, host_and_port
from gregor.config.validators import ConfigValue, Form

METRICS_LISTENER = "gregor.metrics.listener"
_LOCAL = "localhost"


def metrics_listener(text: str) -> Listener:
    """Return the listener for a legal value of METRICS_LISTENER that is not empty."""
    found = host_and_port(_with_host(text))
    assert found is not None
    return Listener("METRICS", *found, "PLAINTEXT")


def _is_address(value: ConfigValue) -> bool:
    return not value or host_and_port(_with_host(str(value))) is not None


def _with_host(text: str) -> str:
    return text if ":" in text else f"{_LOCAL}:{text}"


METRICS_SETTINGS = (
    ConfigDef(
        METRICS_LISTENER,
        "string",
        "",
        "Address of the HTTP listener with /metrics, /health/live and /health/ready: a port, which serves this machine "
        "only, or host:port, of which an empty host means all addresses. Empty: there is none. The listener has no TLS "
        "and no authentication.",
        Form(_is_address, "empty, a port from 0 to 65535, or host:port"),
        visibility=INTERNAL,
    ),
)
