"""Levels of loggers by Log4j's names; refused values are those that Apache Kafka 4.3.1 refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from gregor.broker.jobs import loggers
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.config_changes import ConfigChange

SET, DELETE, APPEND, SUBTRACT = range(4)
NAME = "some.logger.of.a.test"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(NAME)
    root_level = logging.getLogger().level
    yield found
    found.setLevel(logging.NOTSET)
    logging.getLogger().setLevel(root_level)


def test_levels_both_ways(logger: logging.Logger) -> None:
    for level, number in loggers.LEVELS.items():
        loggers.alter([ConfigChange(NAME, SET, level)], validate_only=False)
        assert logger.level == number
        assert loggers.levels()[NAME] == level
    logger.setLevel(100)
    assert loggers.levels()[NAME] == "OFF"
    loggers.alter([ConfigChange("root", SET, "ERROR"), ConfigChange(NAME, DELETE)], validate_only=False)
    assert loggers.levels()[NAME] == loggers.levels()["root"] == "ERROR"


def test_a_change_is_a_normal_event_in_the_log(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loggers.alter([ConfigChange(NAME, SET, "DEBUG"), ConfigChange(NAME, DELETE)], validate_only=False)
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", f"logger {NAME}: the level was set to DEBUG"),
        ("INFO", f"logger {NAME}: the level was reset to that of its parent"),
    ]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("no.such.logger", DELETE, None), ErrorCode.INVALID_CONFIG),
        (("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "info"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "OFF"), ErrorCode.INVALID_CONFIG),
        (("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", 9, "INFO"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_all_or_none(logger: logging.Logger, change: tuple[str, int, str | None], error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        loggers.alter([ConfigChange(NAME, SET, "DEBUG"), ConfigChange(*change)], validate_only=False)
    assert caught.value.code is error
    assert logger.level == logging.NOTSET
