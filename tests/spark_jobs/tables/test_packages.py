"""The packages of the table formats, by the version of Spark."""

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.tables.packages import delta_package, iceberg_package


def test_packages_are_those_of_the_minor_version_of_spark() -> None:
    assert delta_package("4.1.1").coordinate == "io.delta:delta-spark_4.1_2.13:4.4.0"
    assert delta_package("4.2.0").coordinate == "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert iceberg_package("4.1.1").coordinate == "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
    assert iceberg_package("4.0.5").coordinate == "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"


def test_spark_without_a_package_is_refused_with_the_remedy() -> None:
    with pytest.raises(JobError, match=r"Iceberg 1\.11\.0 has no package for Spark 4\.2\.0, only for Spark 4\.0, 4\.1"):
        iceberg_package("4.2.0")
    with pytest.raises(JobError, match=r"Delta 4\.4\.0 .* Spark 4\.3\.0.*pip install 'pyspark==4\.1\.1'"):
        delta_package("4.3.0")
