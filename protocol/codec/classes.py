"""Python classes of messages, made from the schemas: slotted, with keyword arguments, for all versions at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from gregor.protocol.codec.compiler import Codec, decode_with, encode_with
from gregor.protocol.codec.model import Field, Message


class Structure:
    """The base of all message and struct classes."""

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

    def replaced(self, **fields: object) -> Self:
        """Return a copy with other values for these fields; all other values are shared with this object.

        Raises AttributeError for a name that is not a field.
        """
        # The module copy would need several times as long.
        class_ = _plain_class(self)
        changed: Self = object.__new__(class_)
        for name in class_.__slots__:
            setattr(changed, name, getattr(self, name))
        for name, value in fields.items():
            setattr(changed, name, value)
        return changed


class ApiMessage(Structure):
    """The base of all message classes. Each class has its own `decode`, `encode`, `encode_into`, and the same in
    steps."""

    __slots__ = ()


class _SharedDefault:
    """Marks the one object of defaults that all messages share for a struct without a value: it refuses changes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"this {type(self).__qualname__} is the shared default: assign a new one instead")

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is not shared: it is an ordinary object.
        return _plain_class(self), ()


class _Missing:
    """Default argument of a field for which each new object has a list or struct of its own."""

    def __repr__(self) -> str:
        return "..."


_MISSING = _Missing()


def build_class(message: Message) -> type:
    """Return the class of a message, with those of its structs as attributes; codecs and constructors are compiled on
    first use."""
    classes: dict[str, type] = {}
    constructors = _Constructors(message, classes)
    for struct in (*message.structs, message):
        base = ApiMessage if struct is message else Structure
        members = {"__slots__": tuple(field.name for field in struct.fields), "__init__": constructors.first}
        class_: Any = type(struct.name, (base,), members)
        class_.__module__ = "gregor.protocol.messages"
        classes[struct.name] = class_
        if struct is not message:
            class_.__qualname__ = f"{message.name}.{struct.name}"
    for struct in message.structs:
        setattr(class_, struct.name, classes[struct.name])
    class_.API_KEY = -1 if message.api_key is None else message.api_key
    class_.MIN_VERSION = message.versions.first
    class_.MAX_VERSION = message.versions.last
    # A message without flexible versions has a first one that no version reaches.
    class_.FLEXIBLE_FROM = message.flexible.first if message.flexible.last is None else 0x7FFF
    class_.HAS_ARRAYS = any(field.is_array for struct in (*message.structs, message) for field in struct.fields)
    codec = Codec(message, classes, constructors.defaults)
    class_.decoders, class_.encoders = codec.decoders(), codec.encoders()
    class_.decode = staticmethod(decode_with(class_.decoders))
    class_.encode, class_.encode_into = encode_with(class_.encoders)
    class_.decode_in_steps = staticmethod(codec.decoder_in_steps())
    class_.encode_in_steps = codec.encoder_in_steps()
    return class_  # type: ignore[no-any-return]


class _Constructors:
    """The `__init__` of a message and its structs. They are compiled when the first object is made: a broker loads
    over a hundred messages of which it makes a few."""

    def __init__(self, message: Message, classes: dict[str, type]) -> None:
        self._structs = (*message.structs, message)
        self._name = message.name
        self._classes = classes
        self._compiled: dict[str, tuple[dict[str, Any], dict[str, object]]] = {}

        def first(new: Any, /, **values: object) -> None:
            self._install()
            new.__init__(**values)

        self.first = first

    def defaults(self) -> dict[str, object]:
        """Return the shared default objects of structs, by name."""
        if not self._compiled:
            # Of two threads that do so at once, both use what one of them made: a default is recognised by identity.
            self._compiled.setdefault(self._name, self._compile())
        return self._compiled[self._name][1]

    def _install(self) -> None:
        self.defaults()
        for name, init in self._compiled[self._name][0].items():
            class_: Any = self._classes[name]
            class_.__init__ = init

    def _compile(self) -> tuple[dict[str, Any], dict[str, object]]:
        lines = []
        for struct in self._structs:
            names = [field.name for field in struct.fields]
            lines.append(f"def init_{struct.name}(self{', *, ' if names else ''}{', '.join(names)}):")
            lines.extend(f"    self.{field.name} = {_stored(field)}" for field in struct.fields)
            lines.append("    return")
        values: dict[str, Any] = {"MISSING": _MISSING, "CLASSES": self._classes}
        exec(compile("\n".join(lines), f"<__init__ of {self._name}>", "exec"), values)
        inits: dict[str, Any] = {}
        defaults: dict[str, object] = {}
        for struct in self._structs:  # inner ones first and the message last
            init = inits[struct.name] = values[f"init_{struct.name}"]
            init.__name__ = "__init__"
            init.__kwdefaults__ = {field.name: _default_argument(field, defaults) for field in struct.fields}
            if struct is not self._structs[-1] and all(value is not _MISSING for value in init.__kwdefaults__.values()):
                defaults[struct.name] = _shared_default(self._classes[struct.name], init)
        return inits, defaults


def _stored(field: Field) -> str:
    """Return the expression that `__init__` stores for an argument."""
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


def _shared_default(class_: type, init: Callable[[object], None]) -> object:
    """Return an object of defaults, all of them immutable."""
    frozen = type(class_.__name__, (_SharedDefault, class_), {"__slots__": (), "__qualname__": class_.__qualname__})
    default: object = object.__new__(frozen)
    filled: Any = object.__new__(class_)
    init(filled)
    for name in class_.__slots__:  # type: ignore[attr-defined]
        object.__setattr__(default, name, getattr(filled, name))
    return default


def _plain_class(value: object) -> Any:
    """Return the class of a value, for a shared default the class of the ordinary objects."""
    class_ = type(value)
    return class_.__mro__[2] if issubclass(class_, _SharedDefault) else class_
