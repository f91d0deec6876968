"""Objects that Spark pickles for its tasks: a worker without gregor, or with another version, reports the remedy.

Spark pickles readers and functions by the names of their modules, and a worker where a module is missing reports no
more than its name. So they are pickled once more, as an argument of a function that is itself pickled by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gregor.spark_jobs.launch.workers import PACK, version

CANNOT_LOAD = f"the Python {{python}} on {{host}} cannot load gregor ({{error}}): {PACK}"
_OTHER_VERSION = f"the Python {{python}} on {{host}} has gregor {{found}}, and the driver {{expected}}: {PACK}"

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def unpickled_as(make: Callable[..., Any], *arguments: Any) -> Reduced:
    """Return the result of `__reduce__` for an object that is unpickled as `make(*arguments)`.

    Only cloudpickle, which Spark uses, can pickle it. Unpickling raises ImportError with the remedy.
    """
    from pyspark import cloudpickle

    def unpickle(content: bytes, expected: str | None, cannot_load: str, other_version: str) -> Any:
        # As it is local, and reads no global name, it is pickled by value.
        import pickle
        import socket
        import sys
        from importlib import metadata

        where = {"python": sys.executable, "host": socket.gethostname()}
        try:
            found = metadata.version("gregor")
        except metadata.PackageNotFoundError:  # it is missing, or only on the path
            found = None
        if None not in (found, expected) and found != expected:
            raise ImportError(other_version.format(**where, found=found, expected=expected))
        try:
            make, arguments = pickle.loads(content)
        except (ImportError, AttributeError) as error:
            raise ImportError(cannot_load.format(**where, error=error)) from None
        return make(*arguments)

    return unpickle, (cloudpickle.dumps((make, arguments)), version(), CANNOT_LOAD, _OTHER_VERSION)


class Portable:
    """An object that is unpickled with the remedy in the error."""

    def __reduce__(self) -> Reduced:
        return unpickled_as(_restored, type(self), self.__getstate__())


def _restored(kind: type[object], state: dict[str, Any] | None) -> object:
    made = object.__new__(kind)
    made.__dict__.update(state or {})
    return made


class MadeInTasks:
    """A function for tasks that each of them makes itself: `make(*arguments)`."""

    def __init__(self, make: Callable[..., Callable[[Any], Any]], *arguments: Any) -> None:
        self._make = make
        self._arguments = arguments

    def __call__(self, batches: Any) -> Any:
        return self._make(*self._arguments)(batches)

    def __reduce__(self) -> Reduced:
        return unpickled_as(self._make, *self._arguments)
