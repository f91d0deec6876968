"""The metrics in a push: MetricsData of opentelemetry-proto (metrics.v1), of which clients use numbers alone.

    MetricsData      1 resource_metrics
    ResourceMetrics  2 scope_metrics
    ScopeMetrics     2 metrics
    Metric           1 name, 5 gauge, 7 sum (9 to 11: histograms and summaries, which KIP-714 does not use)
    Gauge, Sum       1 data_points; of a sum 2 aggregation_temporality (1 delta, 2 cumulative), 3 is_monotonic
    NumberDataPoint  4 as_double, 6 as_int (sfixed64), 7 attributes
    KeyValue         1 key, 2 value: AnyValue (1 string, 2 bool, 3 int, 4 double)

Protocol buffers: each field is a varint `number << 3 | type` and its value; unknown fields are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from gregor.protocol.turns import Steps

MAX_FIELDS = 200_000
"""Fields of one push that are decoded. A data point has about ten."""
MAX_POINT_FIELDS = 256
"""Fields of one data point, and of its attributes."""
MAX_NAME = 200
"""Characters of a name or of the value of an attribute; the rest is cut."""
MAX_ATTRIBUTES = 8
FIELDS_PER_STEP = 64

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_DOUBLE, _INT64 = Struct("<d"), Struct("<q")
_DELTA = 1
_GAUGE_FIELD, _SUM_FIELD = 5, 7


class MalformedTelemetry(ValueError):
    """The bytes are no MetricsData, or have too many fields."""


class Point(NamedTuple):
    """One number of a metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    """A monotonic sum."""
    is_delta: bool
    """The difference to the push before."""


class _Field(NamedTuple):
    number: int
    kind: int
    value: int
    """Of a varint; else the position of its bytes."""
    end: int


class Decoder:
    """Decodes one push; `points` raises MalformedTelemetry."""

    def __init__(self, data: bytes, max_points: int) -> None:
        """`data` is not compressed. Further points than `max_points` are left out and counted."""
        self._data = data
        self._max_points = max_points
        self._left = MAX_FIELDS
        self._left_after_point = 0
        """The least of `_left` after the present data point: it is decoded in one step, with its attributes."""
        self._found: list[Point] = []
        self.left_out = 0

    def points(self) -> Steps[list[Point]]:
        """Decode all numbers, in short steps."""
        yield from self._each(0, len(self._data), 1, self._resource)
        return self._found

    def _resource(self, resource: _Field) -> Steps[None]:
        return self._each(resource.value, resource.end, 2, self._scope)

    def _scope(self, scope: _Field) -> Steps[None]:
        return self._each(scope.value, scope.end, 2, self._metric)

    def _each(self, begin: int, end: int, number: int, decode: Callable[[_Field], Steps[None]]) -> Steps[None]:
        """Decode the submessages of a number."""
        for one in self._fields(begin, end):
            if not self._left % FIELDS_PER_STEP:
                yield None
            if one.number == number and one.kind == _BYTES:
                yield from decode(one)

    def _fields(self, begin: int, end: int) -> Iterator[_Field]:
        data = self._data
        while begin < end:
            self._left -= 1
            if self._left < self._left_after_point:
                raise MalformedTelemetry(
                    f"more than {MAX_FIELDS} fields"
                    if self._left < 0
                    else f"a data point of more than {MAX_POINT_FIELDS} fields"
                )
            tag, begin = _varint(data, begin, end)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, begin = _varint(data, begin, end)
                yield _Field(number, kind, value, begin)
                continue
            if kind == _BYTES:
                size, begin = _varint(data, begin, end)
            else:
                size = _FIXED_BYTES.get(kind, -1)
                if size < 0:
                    raise MalformedTelemetry(f"a field of type {kind}")
            if size > end - begin:
                raise MalformedTelemetry("a field is longer than its message")
            yield _Field(number, kind, begin, begin + size)
            begin += size

    def _metric(self, metric: _Field) -> Steps[None]:
        name, numbers = "", list[_Field]()
        for one in self._fields(metric.value, metric.end):
            if one.kind == _BYTES and one.number == 1:
                name = self._text(one)
            elif one.kind == _BYTES and one.number in (_GAUGE_FIELD, _SUM_FIELD):
                numbers.append(one)
            if not self._left % FIELDS_PER_STEP:
                yield None
        for one in numbers:
            yield from self._numbers(name, one)
            yield None

    def _numbers(self, name: str, message: _Field) -> Steps[None]:
        is_monotonic = is_delta = False
        points = list[_Field]()
        for one in self._fields(message.value, message.end):
            if one.number == 1 and one.kind == _BYTES:
                points.append(one)
            elif one.number == 2 and one.kind == _VARINT:
                is_delta = one.value == _DELTA
            elif one.number == 3 and one.kind == _VARINT:
                is_monotonic = bool(one.value)
            if not self._left % FIELDS_PER_STEP:
                yield None
        is_sum = message.number == _SUM_FIELD
        for index, one in enumerate(points):
            if len(self._found) >= self._max_points:
                self.left_out += len(points) - index
                break
            point = self._point(name, one, is_sum and is_monotonic, is_sum and is_delta)
            if point is not None:
                self._found.append(point)
            yield None

    def _point(self, name: str, message: _Field, is_counter: bool, is_delta: bool) -> Point | None:
        value: float | None = None
        attributes: dict[str, str] = {}
        self._left_after_point = max(0, self._left - MAX_POINT_FIELDS)
        for one in self._fields(message.value, message.end):
            if one.kind == _FIXED64 and one.number == 4:
                value = _DOUBLE.unpack_from(self._data, one.value)[0]
            elif one.kind == _FIXED64 and one.number == 6:
                value = _INT64.unpack_from(self._data, one.value)[0]
            elif one.kind == _BYTES and one.number == 7 and len(attributes) < MAX_ATTRIBUTES:
                key, text = self._attribute(one)
                attributes[key] = text
        self._left_after_point = 0
        return None if value is None else Point(name, tuple(sorted(attributes.items())), value, is_counter, is_delta)

    def _attribute(self, message: _Field) -> tuple[str, str]:
        key = text = ""
        for one in self._fields(message.value, message.end):
            if one.kind == _BYTES and one.number == 1:
                key = self._text(one)
            elif one.kind == _BYTES and one.number == 2:
                text = self._any_value(one)
        return key, text

    def _any_value(self, message: _Field) -> str:
        text = ""
        for one in self._fields(message.value, message.end):
            if one.kind == _BYTES and one.number == 1:
                text = self._text(one)
            elif one.kind == _VARINT and one.number == 2:
                text = "true" if one.value else "false"
            elif one.kind == _VARINT and one.number == 3:
                text = str(one.value - (1 << 64) if one.value >> 63 else one.value)
            elif one.kind == _FIXED64 and one.number == 4:
                text = str(_DOUBLE.unpack_from(self._data, one.value)[0])
        return text

    def _text(self, field: _Field) -> str:
        # No character has more than four bytes.
        end = min(field.end, field.value + 4 * MAX_NAME)
        return self._data[field.value : end].decode(errors="replace")[:MAX_NAME]


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise MalformedTelemetry("a number ends early")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise MalformedTelemetry("a number has more than 10 bytes")
