"""Writing by `format("gregor")`, for which the protocol of the sink does not hold."""

import pytest
from pyspark.sql.types import StructType

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.datasource import GregorDataSource


def test_format_refuses_to_write_and_names_the_sinks() -> None:
    source = GregorDataSource({})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(JobError, match='format\\("gregor"\\) does not write: .* exactly_once or at_least_once'):
            make(StructType(), False)
