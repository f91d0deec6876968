"""Makes the Python classes of a message from its schema: slotted, with keyword arguments, for all versions at once."""

from collections.abc import Iterator
from typing import Any

from gregor.protocol.codec.compiler import Codec, decode_with, encode_with
from gregor.protocol.codec.model import Field, Message, Struct


class Structure:
    """What every message and struct class has in common."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        class_ = _plain_class(self)
        if _plain_class(other) is not class_:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in class_.__slots__)

    def __repr__(self) -> str:
        class_ = _plain_class(self)
        return f"{class_.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in class_.__slots__)})"


class ApiMessage(Structure):
    """What every message class has in common; `decode`, `encode`, `encode_into`, and the same in steps, come
    with each class."""

    __slots__ = ()


class _SharedDefault:
    """Marks the one object of defaults that stands in all messages for a struct left out: it refuses changes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"this {type(self).__qualname__} is the shared default: assign a new one instead")

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is nobody else's: an ordinary object.
        return _plain_class(self), ()


class _Missing:
    """Default argument where each new object needs a list or struct of its own."""

    def __repr__(self) -> str:
        return "..."


_MISSING = _Missing()


def build_class(message: Message) -> type:
    """The class of a message, with those of its structs as attributes; codecs are compiled when first used."""
    classes: dict[str, type] = {}
    defaults: dict[str, object] = {}
    for struct, init in _initializers(message, classes):
        base = ApiMessage if struct is message else Structure
        class_: Any = type(struct.name, (base,), {"__slots__": tuple(field.name for field in struct.fields)})
        class_.__module__ = "gregor.protocol.messages"
        init.__kwdefaults__ = {field.name: _default_argument(field, defaults) for field in struct.fields}
        class_.__init__ = init
        classes[struct.name] = class_
        if struct is not message:
            class_.__qualname__ = f"{message.name}.{struct.name}"
            if all(value is not _MISSING for value in init.__kwdefaults__.values()):
                defaults[struct.name] = _shared_default(class_)
    for struct in message.structs:
        setattr(class_, struct.name, classes[struct.name])
    class_.API_KEY = -1 if message.api_key is None else message.api_key
    class_.MIN_VERSION = message.versions.first
    class_.MAX_VERSION = message.versions.last
    # A message without flexible versions gets a first one that is never reached.
    class_.FLEXIBLE_FROM = message.flexible.first if message.flexible.last is None else 0x7FFF
    codec = Codec(message, classes, defaults)
    class_.decoders, class_.encoders = codec.decoders(), codec.encoders()
    class_.decode = staticmethod(decode_with(class_.decoders))
    class_.encode, class_.encode_into = encode_with(class_.encoders)
    class_.decode_in_steps = staticmethod(codec.decoder_in_steps())
    class_.encode_in_steps = codec.encoder_in_steps()
    return class_  # type: ignore[no-any-return]


def _initializers(message: Message, classes: dict[str, type]) -> Iterator[tuple[Struct, Any]]:
    """Each struct, inner ones first and the message last, with its `__init__`; all are compiled in one go."""
    structs = (*message.structs, message)
    lines = []
    for struct in structs:
        names = [field.name for field in struct.fields]
        lines.append(f"def init_{struct.name}(self{', *, ' if names else ''}{', '.join(names)}):")
        lines.extend(f"    self.{field.name} = {_stored(field)}" for field in struct.fields)
        lines.append("    return")
    # The structs' classes get in when they are made; they are needed at the earliest in a call.
    values: dict[str, Any] = {"MISSING": _MISSING, "CLASSES": classes}
    exec(compile("\n".join(lines), f"<__init__ of {message.name}>", "exec"), values)
    for struct in structs:
        init = values[f"init_{struct.name}"]
        init.__name__ = "__init__"
        yield struct, init


def _stored(field: Field) -> str:
    """The expression that `__init__` stores for an argument."""
    if field.default is None or not (field.is_array or field.is_struct):
        return field.name
    fresh = "[]" if field.is_array else f"CLASSES[{field.element!r}]()"
    return f"{fresh} if {field.name} is MISSING else {field.name}"


def _default_argument(field: Field, defaults: dict[str, object]) -> Any:
    if field.default is None:
        return None
    if field.is_array:
        return _MISSING
    if field.struct is not None:
        return defaults.get(field.struct.name, _MISSING)
    return field.default


def _shared_default(class_: type) -> object:
    """An object of defaults, all of them immutable."""
    frozen = type(class_.__name__, (_SharedDefault, class_), {"__slots__": (), "__qualname__": class_.__qualname__})
    default: object = object.__new__(frozen)
    filled = class_()
    for name in class_.__slots__:  # type: ignore[attr-defined]
        object.__setattr__(default, name, getattr(filled, name))
    return default


def _plain_class(value: object) -> Any:
    """The class of a value, for a shared default the class that it stands for."""
    class_ = type(value)
    return class_.__mro__[2] if issubclass(class_, _SharedDefault) else class_
