"""The Kafka connector of each version of Spark."""

from pathlib import Path

import pytest

from gregor.spark_jobs import connector
from gregor.spark_jobs.connector import (
    CONNECTORS,
    connector_folder,
    connector_jars,
    connector_package,
    connector_version,
)
from gregor.spark_jobs.errors import JobError
from tests.spark_jobs.test_packages import FakeIvy


@pytest.mark.parametrize(
    ("spark", "version"),
    [("4.0.0", "4.0.0"), ("4.0.5", "4.0.0"), ("4.1.1", "4.1.1"), ("4.1.2", "4.1.1"), ("4.2.0.dev3", "4.2.0")],
)
def test_connector_has_the_minor_version_of_spark(spark: str, version: str) -> None:
    assert connector_version(spark) == version


@pytest.mark.parametrize("spark", ["3.5.6", "4.3.0", "5.0.0"])
def test_spark_without_a_known_connector_is_refused_with_the_remedy(spark: str) -> None:
    with pytest.raises(JobError, match=rf"Spark {spark}.*only for Spark 4\.0, 4\.1, 4\.2") as failure:
        connector_version(spark)
    assert "spark-submit --packages" in str(failure.value)
    assert "pip install 'pyspark==4.1.1'" in str(failure.value)


def test_without_spark_the_connector_is_that_of_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "installed_spark", lambda: None)
    assert connector_version() == "4.1.1"


def test_each_version_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = set()
    for spark, version in CONNECTORS.items():
        monkeypatch.setattr(connector, "installed_spark", lambda spark=spark: f"{spark}.0")
        names = [f"{connector_package().artifact}-{version}.jar"]
        ivy = FakeIvy(names=names)
        assert [jar.name for jar in connector_jars("java", tmp_path, ivy)] == names
        assert f'rev="{version}"' in ivy.module
        folders.add(connector_folder(tmp_path))
    assert {folder.name for folder in folders} == {
        f"spark-sql-kafka-0-10_2.13-{version}" for version in CONNECTORS.values()
    }
    assert set(tmp_path.iterdir()) == folders
