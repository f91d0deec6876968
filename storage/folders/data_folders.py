"""The data folders of a broker (`log.dirs`) together: their identity, and which of them can be used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gregor.protocol.ids import random_uuid, uuid_to_text
from gregor.storage.folders.data_folder import DataFolder
from gregor.storage.folders.identity import MetaProperties, agree_on_meta

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files
    from gregor.storage.log.log import Log

_log = logging.getLogger(__name__)


class DataFolders:
    """Part of LogManager. A folder that cannot be used at start, or fails later, does not affect the others."""

    def __init__(self, paths: Iterable[str], files: Files, clock_ms: Callable[[], int]) -> None:
        self._files = files
        self._clock_ms = clock_ms
        self.all = [DataFolder(path.rstrip("/") or "/", files) for path in dict.fromkeys(paths)]
        self.broker_id: int | None = None
        self.cluster_id: str | None = None

    def lock(self) -> None:
        """Lock all data folders, and create those that do not exist. One that cannot be used has failed from the start.
        Raises FolderInUse, and OSError when no folder is left; then none is held."""
        try:
            for folder in self.all:
                try:
                    folder.lock()
                except OSError as error:
                    self.failed_at_start(folder, error)
        except BaseException:
            self.unlock()
            raise

    def failed_at_start(self, folder: DataFolder, error: OSError) -> None:
        """Continue without the folder; raises the error when none is left."""
        folder.fail(error)
        _log.error(
            "%s cannot be used, its partitions are offline: %s. Repair or mount it and restart the broker, or remove "
            "it from log.dirs",
            folder.path, error,
        )  # fmt: skip
        if not self.online():
            raise error

    def online(self) -> list[DataFolder]:
        """The data folders that have not failed."""
        return [folder for folder in self.all if folder.failure is None]

    def unlock(self) -> None:
        for folder in self.all:
            folder.unlock()

    def release_reserves(self) -> None:
        """Free the room that is reserved for a stop and for a start. Raises nothing."""
        for folder in self.online():
            folder.release_reserve()

    def load_meta(self, cluster_id: str | None, broker_id: int | None) -> str:
        """Determine the cluster and the broker of the folders, and write both into those that lack them. None: not
        known.

        Returns the cluster id: the given one, else that of the folders, else a new one. The broker id is in `broker_id`
        then; None if it is unknown (call again once it is known: until then nothing is written).
        Raises InconsistentFolder when a folder belongs to another broker or cluster, MalformedFile, and OSError when
        no folder is left that can be used.
        """
        stored = {}
        for folder in self.online():
            try:
                stored[folder.meta_path] = folder.read_meta()
            except OSError as error:
                self.failed_at_start(folder, error)
        self.broker_id, agreed = agree_on_meta(stored, broker_id, cluster_id)
        self.cluster_id = agreed or self.cluster_id or uuid_to_text(random_uuid())
        if self.broker_id is not None:
            for folder in self.online():
                known = stored[folder.meta_path]
                wanted = (known or MetaProperties())._replace(broker_id=self.broker_id, cluster_id=self.cluster_id)
                if wanted != known:
                    try:
                        folder.write_meta(wanted, self._clock_ms())
                    except OSError as error:
                        self.failed_at_start(folder, error)
        return self.cluster_id


class DiskErrors:
    """The errors of disks that belong to a data folder as a whole, or to one log in it: an event."""

    def __init__(self) -> None:
        self._handler: Callable[[DataFolder, Log | None, OSError], None] | None = None

    @property
    def has_handler(self) -> bool:
        return self._handler is not None

    def subscribe(self, handler: Callable[[DataFolder, Log | None, OSError], None]) -> None:
        """Set the handler. It is called inside the call that has failed, so it must defer its work. The log is None
        where the error concerns the data folder as a whole. Without a handler errors are logged."""
        self._handler = handler

    def report(self, folder: DataFolder, log: Log | None, error: OSError) -> None:
        if self._handler is not None:
            self._handler(folder, log, error)
        else:
            _log.error("%s: an access to the disk failed: %s", folder.path if log is None else log.directory, error)
