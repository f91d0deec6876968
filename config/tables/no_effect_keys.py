"""Broker settings of Apache Kafka 4.3.1 that change nothing here: checked, kept and described, and each says why.

Loaded only when somebody sets or describes one: a broker that starts without them need not hold them.
"""

from __future__ import annotations

import functools

from gregor.config.definitions import ConfigDef


@functools.cache
def inert_keys() -> dict[str, ConfigDef]:
    """All of them by name."""
    from gregor.config.tables.no_effect_cluster_keys import CLUSTER_KEYS
    from gregor.config.tables.no_effect_group_keys import GROUP_KEYS
    from gregor.config.tables.no_effect_remote_keys import REMOTE_KEYS
    from gregor.config.tables.no_effect_security_keys import SECURITY_KEYS

    return {
        definition.key: definition
        for group in (CLUSTER_KEYS, GROUP_KEYS, REMOTE_KEYS, SECURITY_KEYS)
        for definition in group
    }
