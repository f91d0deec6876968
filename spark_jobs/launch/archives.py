"""The archives on the path of Spark's Python workers, which Spark reads again before each task."""

from __future__ import annotations

import sys
import zipimport


def forget_archives() -> None:
    """Let the next task of this process start without reading the directories of archives again.

    A worker has Spark's Python code and its core jar on its path, as archives. Before each task Spark calls
    importlib.invalidate_caches(), which reads the directory of each of them once for each package that was imported
    from it (0.1 s of processor time for 16). A finder that is not in the cache of the path is made anew at the next
    import, from the directory that `zipimport` keeps.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
