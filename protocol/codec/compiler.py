"""(message, version) -> flat encode and decode functions, compiled from generated source on first use.

`decoder_source` and `encoder_source` write the source; this module keeps the functions by version.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from gregor.protocol.codec.decoder_source import build_decoder
from gregor.protocol.codec.encoder_source import build_encoder
from gregor.protocol.codec.model import Message
from gregor.protocol.codec.primitives import Buffer, FileRegion
from gregor.protocol.errors import MalformedMessage, UnsupportedField

Splices = list[tuple[int, FileRegion]]
Decoder = Callable[[Buffer, int], tuple[Any, int]]
Encoder = Callable[[Any, bytearray, Splices | None], None]


def decode_with(decoders: Mapping[int, Decoder]) -> Callable[..., tuple[Any, int]]:
    """Return the function of `Cls.decode`."""

    def decode(buffer: Buffer, version: int, position: int = 0) -> tuple[Any, int]:
        return decoders[version](buffer, position)

    return decode


def encode_with(encoders: Mapping[int, Encoder]) -> tuple[Callable[..., bytes], Callable[..., None]]:
    """Return the functions of `message.encode` and `message.encode_into`."""

    def encode_into(message: Any, out: bytearray, version: int, splices: Splices | None = None) -> None:
        encoders[version](message, out, splices)

    def encode(message: Any, version: int) -> bytes:
        out = bytearray()
        encoders[version](message, out, None)
        return bytes(out)

    return encode, encode_into


class Codec:
    """The methods of one message class. `classes`, and what `defaults` returns, are as in `source.Source`."""

    def __init__(self, message: Message, classes: dict[str, type], defaults: Callable[[], dict[str, object]]) -> None:
        self.message = message
        self.classes = classes
        self.defaults = defaults

    def decoders(self) -> Mapping[int, Decoder]:
        """Return `Cls.decoders`: version -> (buffer, position) -> (message, end position)."""
        return self._by_version(build_decoder, MalformedMessage)

    def encoders(self) -> Mapping[int, Encoder]:
        """Return `Cls.encoders`: version -> (message, out, splices) -> None."""
        return self._by_version(build_encoder, UnsupportedField)

    def decoder_in_steps(self) -> Callable[..., Generator[None, None, tuple[Any, int]]]:
        """Return the function of `Cls.decode_in_steps`."""
        decoders = self._by_version(partial(build_decoder, in_steps=True), MalformedMessage)

        def decode_in_steps(buffer: Buffer, version: int, position: int = 0) -> Generator[None, None, tuple[Any, int]]:
            return decoders[version](buffer, position)  # type: ignore[no-any-return]

        return decode_in_steps

    def encoder_in_steps(self) -> Callable[..., Generator[None, None, None]]:
        """Return the function of `message.encode_in_steps`."""
        encoders = self._by_version(partial(build_encoder, in_steps=True), UnsupportedField)

        def encode_in_steps(message: Any, out: bytearray, version: int) -> Generator[None, None, None]:
            return encoders[version](message, out, None)  # type: ignore[no-any-return]

        return encode_in_steps

    def _by_version(self, build: Callable[..., Any], error: type[Exception]) -> _ByVersion:
        return _ByVersion(
            self.message, lambda version: build(self.message, version, self.classes, self.defaults()), error
        )


class _ByVersion(dict[int, Any]):
    """version -> function, compiled on first use."""

    def __init__(self, message: Message, build: Callable[[int], Any], error: type[Exception]) -> None:
        super().__init__()
        self._message = message
        self._build = build
        self._error = error

    def __missing__(self, version: int) -> Any:
        if version not in self._message.versions:
            raise self._error(f"{self._message.name} has no version {version}")
        function = self[version] = self._build(version)
        return function
