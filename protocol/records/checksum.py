"""CRC-32C (Castagnoli), the checksum of record batches, by the crc32c library's compiled part.

`import crc32c` also imports the library's command line and reads its own version: argparse, email, zipfile and some
thirty modules more. For a broker that starts in a third of a second these are 15 ms and 2 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec

Crc32c = Callable[..., int]
"""crc32c(data, value=0, gil_release_mode=-1): `value` is the checksum of what came before `data`."""


def compiled_part(package: ModuleSpec | None) -> Crc32c | None:
    """Return the checksum function, or None if this release of the library has it in another place."""
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Crc32c | None = getattr(module, "crc32c", None)
    return function


def _load() -> Crc32c:
    function = compiled_part(find_spec("crc32c"))
    if function is not None:
        return function
    from crc32c import crc32c as whole

    return whole


crc32c = _load()
