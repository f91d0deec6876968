"""The data source `gregor`, found by Spark: installed as the module `pyspark_gregor` beside the package `gregor`.

Spark imports every module whose name begins with `pyspark_` into each session that uses a Python data source. So this
one imports only what Spark itself needs for that; gregor is loaded by the first query on the source.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Reads topics, see gregor.spark_jobs.source.datasource.GregorDataSource."""

    @classmethod
    def name(cls):
        return "gregor"

    def schema(self):
        return self._source().schema()

    def reader(self, schema):
        return self._source().reader(schema)

    def streamReader(self, schema):
        return self._source().streamReader(schema)

    def __reduce__(self):
        return self._source().__reduce__()  # so a task needs no module but gregor, and names the remedy without it

    def _source(self):
        try:
            from gregor.spark_jobs.source.datasource import GregorDataSource
        except ImportError as error:
            raise ImportError(_explained(error), name=error.name) from None
        return GregorDataSource(self.options)


def _explained(error):
    """Return a line about a gregor that is missing, or a part of it or of what it needs."""
    import socket
    import sys

    return (
        f'format("gregor") cannot be loaded by the Python {sys.executable} on {socket.gethostname()} ({error}): '
        "install gregor[spark] of the driver's version into that Python, name another with PYSPARK_PYTHON, or send a "
        "packed environment with spark.archives"
    )
