"""Files on a file system that Spark can reach, through the JVM of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.errors import JobError, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """The files below a folder, by paths relative to it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Raises JobError if Spark has no classes for the file system, or cannot connect to it."""
        from py4j.protocol import Py4JError

        self._root = root.rstrip("/")
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        try:
            self._files = self._hadoop.Path(self._root or "/").getFileSystem(spark._jsc.hadoopConfiguration())
        except Py4JError as error:
            raise JobError(
                f"Spark cannot open the file system of {root}: {reason(error)}. Correct the path, or give the package "
                "of that file system by --conf spark.jars.packages=GROUP:NAME:VERSION"
            ) from error

    @property
    def scheme(self) -> str:
        """The scheme of the file system, such as file or hdfs."""
        return str(self._files.getUri().getScheme())

    def location(self, path: str) -> str:
        """Return a path as Spark's readers and writers have it."""
        return f"{self._root}/{path}"

    def names(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, relative to it, in order."""
        path = self._files.makeQualified(self._path(folder))
        if not self._files.exists(path):
            return []
        prefix = f"{path.toString().rstrip('/')}/"
        found = self._files.listFiles(path, True)
        names = []
        while found.hasNext():
            names.append(str(found.next().getPath().toString()).removeprefix(prefix))
        return sorted(names)

    def matching(self, pattern: str) -> list[tuple[str, int]]:
        """Return the names of the files and folders that match a pattern, and when each was modified, in ms."""
        found = self._files.globStatus(self._path(pattern)) or []
        return [(str(status.getPath().getName()), int(status.getModificationTime())) for status in found]

    def qualified(self) -> tuple[str | None, str]:
        """Return the URL of the folder that contains this one, None for the root of a file system, and its name."""
        whole = self._files.makeQualified(self._hadoop.Path(self._root or "/"))
        parent = whole.getParent()
        return None if parent is None else str(parent.toString()), str(whole.getName())

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        return bool(self._files.exists(self._path(path)))

    def read(self, path: str) -> str:
        """Return the text of a file."""
        stream = self._files.open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of an older one."""
        stream = self._files.create(self._path(path), True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def rename(self, old: str, new: str) -> None:
        """Rename a file to a name that no file has."""
        target = self._path(new)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._path(old), target):
            raise JobError(
                f"{self._path(old).toString()} cannot be renamed to {target.toString()}; is one a mount point?"
            )

    def delete(self, path: str) -> None:
        """Delete a file or a folder if it is there."""
        self._files.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self.location(path))
