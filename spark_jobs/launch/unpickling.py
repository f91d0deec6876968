"""Objects that Spark pickles for its tasks: a worker without gregor, or with another version, reports the remedy.

Spark pickles readers and functions by the names of their modules, and a worker where a module is missing reports no
more than its name. So they are pickled once more, as an argument of a function that is itself pickled by value.
"""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Callable
from typing import Any

from gregor.spark_jobs.installation import installed_gregor
from gregor.spark_jobs.launch.workers import PACK

_CANNOT_LOAD = f"the Python {{python}} on {{host}} cannot load gregor ({{error}}): {PACK}"

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def unpickled_as(make: Callable[..., Any], *arguments: Any) -> Reduced:
    """Return the result of `__reduce__` for an object that is unpickled as `make(*arguments)`.

    Only cloudpickle, which Spark uses, can pickle it. Unpickling raises ImportError with the remedy.
    """
    from pyspark import cloudpickle

    def unpickle(content: bytes, driver_version: str | None, cannot_load: str) -> Any:
        # As it is local, and reads no global name, it is pickled by value.
        import importlib
        import socket
        import sys

        try:
            here = importlib.import_module("gregor.spark_jobs.launch.unpickling")
        except ImportError as error:
            text = cannot_load.format(python=sys.executable, host=socket.gethostname(), error=error)
            raise ImportError(text) from None
        return here.made_of(content, driver_version)

    return unpickle, (cloudpickle.dumps((make, arguments)), installed_gregor(), _CANNOT_LOAD)


def made_of(content: bytes, driver_version: str | None) -> Any:
    """Return what the function in pickled content makes; raise ImportError if this is not the gregor of the driver."""
    found = installed_gregor()
    if None not in (found, driver_version) and found != driver_version:
        where = f"the Python {sys.executable} on {socket.gethostname()}"
        raise ImportError(f"{where} has gregor {found}, and the driver {driver_version}: {PACK}")
    try:
        make, arguments = pickle.loads(content)
    except (ImportError, AttributeError) as error:
        raise ImportError(cannot_load(error)) from None
    return make(*arguments)


def cannot_load(error: Exception) -> str:
    """Return the line about a part of gregor, or of what it needs, that this Python does not have."""
    return _CANNOT_LOAD.format(python=sys.executable, host=socket.gethostname(), error=error)


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
