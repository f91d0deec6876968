"""Reference cycles that are left behind: what is in one may stay for good (broker.jobs.gc_policy)."""

from __future__ import annotations

import gc
from collections.abc import Callable


def left_in_cycles(action: Callable[[], object]) -> set[str]:
    """The names of gregor's classes of which the action leaves objects that only a collection would free."""
    gc.collect()
    was_enabled, flags = gc.isenabled(), gc.get_debug()
    gc.disable()
    try:
        action()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return {type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("gregor.")}
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
