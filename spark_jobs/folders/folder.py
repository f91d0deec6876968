"""Text files in a folder on a file system that Spark reaches: by the JVM of the driver, or by queries of a server of
Spark Connect.

A DataFrame is written to a folder of files whose names Spark chooses. A file that was written through Spark Connect is
therefore a folder with one part; both ways read both forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gregor.spark_jobs.folders.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SUCH_PATH = "PATH_NOT_FOUND"


class Files(Protocol):
    """The files by their paths below the folder."""

    def names(self, pattern: str) -> list[str]:
        """Return the names that match a pattern."""

    def modified_ms(self, pattern: str) -> int | None:
        """Return the time of the newest file that matches a pattern; None if none matches."""

    def read(self, path: str) -> str:
        """Return the text of a file that exists."""

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of an older one."""


class Folder:
    """A folder on a file system that Spark can reach."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        from pyspark.sql.utils import is_remote

        self.path = path.rstrip("/")
        self._files: Files = FilesOfConnect(spark, self.path) if is_remote() else FilesOfJvm(spark, path)

    def names(self, pattern: str) -> list[str]:
        """Return the names that match a pattern below the folder.

        Through Spark Connect those of files only; for a folder that matches, the names of the files in it.
        """
        return self._files.names(pattern)

    def modified_ms(self, pattern: str) -> int | None:
        """Return the time of the newest file that matches a pattern below the folder; None if none matches."""
        return self._files.modified_ms(pattern)

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if there is no such file."""
        return self._files.read(name) if self.names(name) else None

    def write(self, name: str, text: str) -> None:
        """Write a file, in place of an older one."""
        self._files.write(name, text)


class FilesOfJvm:
    """Files by Hadoop's classes in the JVM of the driver."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._files = HadoopFiles(spark, path)

    def names(self, pattern: str) -> list[str]:
        return [name for name, _ in self._files.matching(pattern)]

    def modified_ms(self, pattern: str) -> int | None:
        return max((modified_ms for _, modified_ms in self._files.matching(pattern)), default=None)

    def read(self, path: str) -> str:
        parts = self.names(f"{path}/part-*")
        return self._files.read(f"{path}/{parts[0]}" if parts else path)

    def write(self, path: str, text: str) -> None:
        if self.names(f"{path}/part-*"):
            self._files.delete(path)
        self._files.write(path, text)


class FilesOfConnect:
    """Files by queries of a Spark Connect server."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root

    def names(self, pattern: str) -> list[str]:
        return [path.rpartition("/")[2] for path, _ in self._found(pattern)]

    def modified_ms(self, pattern: str) -> int | None:
        return max((round(time.timestamp() * 1000) for _, time in self._found(pattern)), default=None)

    def _found(self, pattern: str) -> list[Any]:
        from pyspark.errors import AnalysisException

        # Without the option the name of a folder such as batch_id=3 becomes a column.
        files = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            return list(files.load(f"{self._root}/{pattern}").select("path", "modificationTime").collect())
        except AnalysisException as error:
            if NO_SUCH_PATH in str(error):
                return []
            raise

    def read(self, path: str) -> str:
        return "".join(row.value for row in self._spark.read.text(f"{self._root}/{path}", wholetext=True).collect())

    def write(self, path: str, text: str) -> None:
        rows = self._spark.createDataFrame([(text,)], "value string")
        rows.coalesce(1).write.mode("overwrite").text(f"{self._root}/{path}")
