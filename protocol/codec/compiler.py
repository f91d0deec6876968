"""(message, version) -> flat encode and decode functions, compiled from generated source on first use.

`decoder_source` and `encoder_source` write the source; here lie the cache by version and the errors that leave.
"""

import struct as structs
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from gregor.protocol.codec.decoder_source import build_decoder
from gregor.protocol.codec.encoder_source import build_encoder
from gregor.protocol.codec.model import Message
from gregor.protocol.codec.primitives import Buffer, FileRegion
from gregor.protocol.errors import MalformedMessage, UnsupportedField

Splices = list[tuple[int, FileRegion]]


class Codec:
    """The methods of one message class. `classes` and `defaults` as in `source.Source`."""

    def __init__(self, message: Message, classes: dict[str, type], defaults: dict[str, object]) -> None:
        self.message = message
        self.classes = classes
        self.defaults = defaults

    def decoder(self) -> Callable[..., tuple[Any, int]]:
        """The function behind `Cls.decode`."""
        name = self.message.name
        decoders = self._by_version(build_decoder, MalformedMessage)

        def decode(buffer: Buffer, version: int, position: int = 0) -> tuple[Any, int]:
            try:
                return decoders[version](buffer, position)  # type: ignore[no-any-return]
            except MalformedMessage as error:
                raise MalformedMessage(f"{name} v{version}: {error}") from None
            except (structs.error, IndexError, UnicodeDecodeError) as error:
                raise MalformedMessage(f"{name} v{version}: {error}") from error

        return decode

    def encoders(self) -> tuple[Callable[..., bytes], Callable[..., None]]:
        """The functions behind `message.encode` and `message.encode_into`."""
        name = self.message.name
        encoders = self._by_version(build_encoder, UnsupportedField)

        def encode_into(message: Any, out: bytearray, version: int, splices: Splices | None = None) -> None:
            start = len(out)
            try:
                encoders[version](message, out, splices)
            except BaseException as error:
                # The output may hold earlier frames of the connection: they stay whole.
                del out[start:]
                if splices:
                    splices[:] = [splice for splice in splices if splice[0] <= start]
                if isinstance(error, structs.error):
                    raise ValueError(f"{name} v{version}: {error}") from error
                raise

        def encode(message: Any, version: int) -> bytes:
            out = bytearray()
            encode_into(message, out, version)
            return bytes(out)

        return encode, encode_into

    def decoder_in_steps(self) -> Callable[..., Generator[None, None, tuple[Any, int]]]:
        """The function behind `Cls.decode_in_steps`."""
        name = self.message.name
        decoders = self._by_version(partial(build_decoder, in_steps=True), MalformedMessage)

        def decode_in_steps(buffer: Buffer, version: int, position: int = 0) -> Generator[None, None, tuple[Any, int]]:
            try:
                return (yield from decoders[version](buffer, position))  # type: ignore[no-any-return]
            except MalformedMessage as error:
                raise MalformedMessage(f"{name} v{version}: {error}") from None
            except (structs.error, IndexError, UnicodeDecodeError) as error:
                raise MalformedMessage(f"{name} v{version}: {error}") from error

        return decode_in_steps

    def encoder_in_steps(self) -> Callable[..., Generator[None, None, None]]:
        """The function behind `message.encode_in_steps`."""
        name = self.message.name
        encoders = self._by_version(partial(build_encoder, in_steps=True), UnsupportedField)

        def encode_in_steps(message: Any, out: bytearray, version: int) -> Generator[None, None, None]:
            try:
                yield from encoders[version](message, out, None)
            except structs.error as error:
                raise ValueError(f"{name} v{version}: {error}") from error

        return encode_in_steps

    def _by_version(self, build: Callable[..., Any], error: type[Exception]) -> "_ByVersion":
        return _ByVersion(
            self.message, lambda version: build(self.message, version, self.classes, self.defaults), error
        )


class _ByVersion(dict[int, Any]):
    """version -> function, compiled when first asked for."""

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
