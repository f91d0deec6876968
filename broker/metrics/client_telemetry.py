"""Client telemetry: the broker's own figures, and the metrics that clients have pushed (KIP-714).

The metrics of clients have families of their own, named after them: `org.apache.kafka.producer.record.send.total` is
`kafka_client_producer_record_send_total`. Their labels are client_id, client_instance_id, and those of the client, of
which one with a name of these gets the prefix `attribute_`. Where two clients push a name with different types, the
first one decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gregor.broker.metrics.family import COUNTER, GAUGE, Family, label_text
from gregor.protocol.ids import uuid_to_text
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.broker.telemetry.instances import ClientInstance
    from gregor.broker.telemetry.series import Key, Value
    from gregor.broker.telemetry.telemetry import Telemetry

_PREFIX = "kafka_server_client_metrics_"
_INSTANCES = f"{_PREFIX}instances"
_UNKNOWN = f"{_PREFIX}unknown_subscription_request_total"
_THROTTLED = f"{_PREFIX}throttle_total"
_PUSHES = f"{_PREFIX}push_total"
_FAILED = f"{_PREFIX}push_error_total"
_DROPPED = f"{_PREFIX}dropped_series_total"

FAMILIES = (
    Family(_INSTANCES, GAUGE, (), "Client instances that request subscriptions and push metrics (KIP-714)."),
    Family(_UNKNOWN, COUNTER, (), "Pushes of clients with an old subscription; they fetch the new one."),
    Family(_THROTTLED, COUNTER, (), "Requests of clients before the end of their push interval."),
    Family(_PUSHES, COUNTER, (), "Pushes of clients that were decoded."),
    Family(_FAILED, COUNTER, (), "Pushes of clients that could not be decompressed or decoded."),
    Family(_DROPPED, COUNTER, (), "Series in pushes for which there was no room, or which no subscription requests."),
)
OF_CLIENTS = "kafka_client_"
_NAMESPACE = "org.apache.kafka."
_TOTAL = "_total"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")
_OWN_LABELS = ("client_id", "client_instance_id")


class ClientLines:
    """The lines about clients in one scrape."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._lines: list[tuple[str, float, str]] = []
        self._kinds: dict[str, str] = {}
        self.families: dict[str, Family] = {}
        """The families of the metrics that clients have pushed, by name."""

    def prepare(self) -> Steps[None]:
        """Make the families and lines of clients' metrics, in short steps."""
        self._telemetry.expire()
        shown: set[tuple[str, str]] = set()
        for instance in list(self._telemetry.instances):
            own = _own_labels(instance)
            for count, (key, value) in enumerate(instance.series.items(), 1):
                self._add(key, value, own, shown)
                if not count % ITEMS_PER_STEP:
                    yield None
            yield None

    def _add(self, key: Key, value: Value, own: dict[str, str], shown: set[tuple[str, str]]) -> None:
        name = family_name(key[0], value.is_counter)
        kind = COUNTER if value.is_counter else GAUGE
        labels = own | dict(_labels(key[1]))
        text = label_text(**labels)
        # OpenMetrics names a family of counters without the suffix.
        if self._kinds.setdefault(name.removesuffix(_TOTAL), kind) != kind or (name, text) in shown:
            return
        shown.add((name, text))
        if name not in self.families:
            help_text = f"{key[0]}, as clients push it.".replace("\r", " ")
            self.families[name] = Family(name, kind, _OWN_LABELS, help_text)
        self._lines.append((name, value.value, text))

    def collect(self, page: Page) -> Steps[None]:
        """Add all lines to the page."""
        telemetry, instances = self._telemetry, self._telemetry.instances
        page.add(_INSTANCES, len(instances))
        page.add(_UNKNOWN, instances.unknown_subscriptions)
        page.add(_THROTTLED, instances.throttled)
        page.add(_PUSHES, telemetry.pushes)
        page.add(_FAILED, telemetry.failed_pushes)
        page.add(_DROPPED, telemetry.dropped_series)
        for count, line in enumerate(self._lines, 1):
            page.add(*line)
            if not count % ITEMS_PER_STEP:
                yield None


def family_name(metric: str, is_counter: bool) -> str:
    """Return the name of the family of a metric. Counters alone end in `_total`, as OpenMetrics demands."""
    name = _NOT_IN_NAMES.sub("_", metric.removeprefix(_NAMESPACE)).strip("_") or "unnamed"
    name = name.removesuffix(_TOTAL) if not is_counter else name if name.endswith(_TOTAL) else name + _TOTAL
    return OF_CLIENTS + name


def _own_labels(instance: ClientInstance) -> dict[str, str]:
    return {"client_id": instance.attributes.get("client_id", ""), "client_instance_id": uuid_to_text(instance.id)}


def _labels(attributes: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    used = set(_OWN_LABELS)
    for name, value in attributes:
        label = _NOT_IN_NAMES.sub("_", name).strip("_")
        if not label or label[0].isdigit() or label in used:
            label = f"attribute_{label}"
        if label not in used:
            used.add(label)
            yield label, value
