"""Makes the Python classes of a message from its schema: slotted, with keyword arguments, for all versions at once."""

import struct as structs
from collections.abc import Callable
from typing import Any

from protocol.compiler import build_decoder, build_encoder
from protocol.errors import MalformedMessage, UnsupportedField
from protocol.model import Field, Message, Struct
from protocol.primitives import Buffer, FileRegion

_MISSING: Any = type("Missing", (), {"__repr__": lambda self: "..."})()


def build_class(message: Message) -> type:
    """The class of a message, with those of its structs as attributes; codecs are compiled when first used."""
    classes: dict[str, type] = {}
    defaults: dict[str, object] = {}
    for struct in (*message.structs, message):
        qualified = struct.name if struct is message else f"{message.name}.{struct.name}"
        classes[struct.name] = _struct_class(struct, qualified, classes, defaults)
        if struct is not message and _is_shareable(struct, defaults):
            defaults[struct.name] = _shared_default(struct, classes[struct.name])
    class_: Any = classes[message.name]
    for struct in message.structs:
        setattr(class_, struct.name, classes[struct.name])
    class_.API_KEY = message.api_key
    class_.MIN_VERSION = message.versions.first
    class_.MAX_VERSION = message.versions.last
    # A message without flexible versions gets a first one that is never reached.
    class_.FLEXIBLE_FROM = message.flexible.first if message.flexible.last is None else 0x7FFF
    _add_codecs(class_, message, classes, defaults)
    return class_  # type: ignore[no-any-return]


def _struct_class(struct: Struct, qualified: str, classes: dict[str, type], defaults: dict[str, object]) -> type:
    values: dict[str, Any] = {"MISSING": _MISSING}
    arguments, stores = [], []
    for field in struct.fields:
        name = field.name
        default, store = _default_argument(field, classes, defaults, values)
        arguments.append(f"{name}={default}")
        stores.append(f"        self.{name} = {store}\n")
    names = [field.name for field in struct.fields]
    shown = ", ".join(f"{name}={{self.{name}!r}}" for name in names)
    same = " and ".join(f"self.{name} == other.{name}" for name in names) or "True"
    text = (
        f"class {struct.name}:\n"
        f"    __slots__ = {tuple(names)!r}\n"
        f"    __hash__ = None\n"
        f"    def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}):\n"
        f"{''.join(stores) or '        pass' + chr(10)}"
        f"    def __eq__(self, other):\n"
        f"        if not isinstance(other, {struct.name}):\n"
        f"            return NotImplemented\n"
        f"        return {same}\n"
        f"    def __repr__(self):\n"
        f'        return f"{qualified}({shown})"\n'
    )
    values["__name__"] = "protocol.messages"
    exec(compile(text, f"<class {qualified}>", "exec"), values)
    class_: type = values[struct.name]
    class_.__qualname__ = qualified
    return class_


def _default_argument(
    field: Field, classes: dict[str, type], defaults: dict[str, object], values: dict[str, Any]
) -> tuple[str, str]:
    """(default in the signature, expression that is stored): a fresh list or struct where sharing would be wrong."""
    name = field.name
    if field.default is None:
        return "None", name
    if field.is_array:
        return "MISSING", f"[] if {name} is MISSING else {name}"
    if field.struct is not None:
        if field.struct.name in defaults:
            values[f"default_{name}"] = defaults[field.struct.name]
            return f"default_{name}", name
        values[f"class_{name}"] = classes[field.struct.name]
        return "MISSING", f"class_{name}() if {name} is MISSING else {name}"
    return repr(field.default), name


def _is_shareable(struct: Struct, defaults: dict[str, object]) -> bool:
    """Whether the defaults of all fields are immutable, so that one object can stand for all."""
    return all(
        field.default is None
        or (field.struct.name in defaults if field.struct is not None and not field.is_array else not field.is_array)
        for field in struct.fields
    )


def _shared_default(struct: Struct, class_: type) -> object:
    """One object of defaults for all messages that leave a struct out; it refuses changes, because it is shared."""

    def refuse(self: object, name: str, value: object) -> None:
        raise AttributeError(f"this {class_.__qualname__} is the shared default: assign a new one instead")

    frozen = type(struct.name, (class_,), {"__slots__": (), "__hash__": None, "__setattr__": refuse})
    default: object = object.__new__(frozen)
    filled = class_()
    for field in struct.fields:
        object.__setattr__(default, field.name, getattr(filled, field.name))
    return default


class _Codecs(dict[int, Any]):
    """version -> codec, compiled when first asked for."""

    def __init__(self, message: Message, build: Callable[[int], Any], error: type[Exception]) -> None:
        super().__init__()
        self._message = message
        self._build = build
        self._error = error

    def __missing__(self, version: int) -> Any:
        if version not in self._message.versions:
            raise self._error(f"{self._message.name} has no version {version}")
        codec = self[version] = self._build(version)
        return codec


def _add_codecs(class_: Any, message: Message, classes: dict[str, type], defaults: dict[str, object]) -> None:
    name = message.name
    decoders = _Codecs(message, lambda version: build_decoder(message, version, classes, defaults), MalformedMessage)
    encoders = _Codecs(message, lambda version: build_encoder(message, version, classes, defaults), UnsupportedField)

    def decode(buffer: Buffer, version: int, position: int = 0) -> tuple[Any, int]:
        try:
            return decoders[version](buffer, position)  # type: ignore[no-any-return]
        except MalformedMessage as error:
            raise MalformedMessage(f"{name} v{version}: {error}") from None
        except (structs.error, IndexError, UnicodeDecodeError) as error:
            raise MalformedMessage(f"{name} v{version}: {error}") from error

    def encode_into(
        self: Any, out: bytearray, version: int, splices: list[tuple[int, FileRegion]] | None = None
    ) -> None:
        start = len(out)
        try:
            encoders[version](self, out, splices)
        except BaseException as error:
            # The output may hold earlier frames of the connection: they stay whole.
            del out[start:]
            if splices:
                splices[:] = [splice for splice in splices if splice[0] <= start]
            if isinstance(error, structs.error):
                raise ValueError(f"{name} v{version}: {error}") from error
            raise

    def encode(self: Any, version: int) -> bytes:
        out = bytearray()
        encode_into(self, out, version)
        return bytes(out)

    class_.decode = staticmethod(decode)
    class_.encode_into = encode_into
    class_.encode = encode
