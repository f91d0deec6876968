"""One Spark session for all tests here: its start needs ten seconds."""

import gc
import warnings
from collections.abc import Iterator

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.java import require_java
from tests.spark_jobs.topics import Topics

# Py4J leaves sockets to the garbage collector: not to be held against the test in which that happens.
UNCLOSED = "ignore:unclosed <socket:ResourceWarning"
# Of Spark 4.2, whenever a function over Arrow batches is declared.
NEW_PANDAS = "ignore:PySpark does not yet fully support pandas:FutureWarning"
OF_THE_MACHINE = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED))
            item.add_marker(pytest.mark.filterwarnings(NEW_PANDAS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A session made as jobs make it, on two cores; skipped where there is no Java to run it."""
    try:
        require_java()
    except JobError as error:
        pytest.skip(str(error))
    from gregor.spark_jobs.session import SHORT_JOB, open_session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    settings = {
        "spark.master": "local[2]",
        "spark.sql.warehouse.dir": str(log.parent / "warehouse"),
        # A full cache of consumers closes the oldest ones in a task, and waits 30 s for each whose broker has ended.
        "spark.kafka.consumer.cache.capacity": "10000",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in OF_THE_MACHINE:
            patch.delenv(name, raising=False)
        session = open_session("tests", settings, log, SHORT_JOB)
    yield session
    session.stop()
    collect_sockets()


@pytest.fixture(autouse=True)
def sockets_are_collected_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Not in the tests that follow, which do not expect them."""
    yield
    if "spark" in request.fixturenames:
        collect_sockets()


def collect_sockets() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)
