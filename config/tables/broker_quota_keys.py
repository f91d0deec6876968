"""The broker settings of client quotas.

The limits themselves are no settings of brokers: they are kept for users, client ids and addresses, and altered by
`gregor configs`."""

from __future__ import annotations

from gregor.config.definitions import LONG_MAX, RETIRED, ConfigDef
from gregor.config.validators import at_least

QUOTA_SETTINGS = (
    ConfigDef("quota.window.num", "int", 11, "Windows over which the rate of a client is measured.", at_least(1)),
    ConfigDef("quota.window.size.seconds", "int", 1, "Length of a window of client quotas.", at_least(1)),
    ConfigDef(
        "controller.quota.window.num",
        "int",
        11,
        "Windows of the quota of topic changes; a client may save up the changes of all of them.",
        at_least(1),
    ),
    ConfigDef(
        "controller.quota.window.size.seconds",
        "int",
        1,
        "Length of a window of the quota of topic changes.",
        at_least(1),
    ),
    ConfigDef(
        "quota.producer.default",
        "long",
        LONG_MAX,
        "Bytes per second of each client id that produces and has no other quota (until Apache Kafka 2.8).",
        at_least(1),
        visibility=RETIRED,
    ),
    ConfigDef(
        "quota.consumer.default",
        "long",
        LONG_MAX,
        "Bytes per second of each client id that consumes and has no other quota (until Apache Kafka 2.8).",
        at_least(1),
        visibility=RETIRED,
    ),
)
