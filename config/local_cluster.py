"""The settings of several brokers on one machine, derived from the settings of one.

The broker of index i, counted from 0, has of its own:

* ``broker.id`` (or ``node.id``): the number given plus i, or i if none is given; with -1, or with a
  ``zookeeper.connect`` and no number, each broker generates its number;
* ``listeners``, ``advertised.listeners`` and the old ``port`` and ``advertised.port``: the port given plus i; port 0
  stays 0;
* ``log.dirs``: the folder ``broker-<i>`` in each of them.

All other settings are the same for all brokers.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from gregor.config.addresses import OLD_ADDRESS_KEYS
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.listeners import METRICS_LISTENER, Listener, address_text, metrics_listener

MAX_MEMBERS = 64
OFFSETS_COPIES, TOPICS_COPIES = "offsets.topic.replication.factor", "default.replication.factor"
TRANSACTIONS_COPIES = "transaction.state.log.replication.factor"
MEMBER_FOLDER = "broker-{}"


def member_folder(folder: str, index: int) -> str:
    """Return the data folder of one broker in a folder of the cluster."""
    return f"{folder.rstrip('/') or '/'}/{MEMBER_FOLDER.format(index)}"


def members_in(folders: Iterable[str]) -> list[int]:
    """Return the indexes, in order, of the brokers that have data in these folders of a cluster."""
    held = {
        index
        for folder in folders
        for index in range(MAX_MEMBERS)
        if os.path.exists(f"{member_folder(folder, index)}/meta.properties")
    }
    return sorted(held)


def member_settings(config: BrokerConfig, count: int) -> list[dict[str, str]]:
    """Return the settings of each broker that override the common ones; raise ConfigError if ports would collide."""
    if not 1 <= count <= MAX_MEMBERS:
        raise ConfigError("--brokers", count, f"must be from 1 to {MAX_MEMBERS}")
    metrics = [metrics_listener(config[METRICS_LISTENER])] if config[METRICS_LISTENER] else []
    _check_room("listeners", [*config.listeners, *metrics], count)
    _check_end("advertised.listeners", config.advertised_listeners, count)
    return [_settings(config, index) for index in range(count)]


def _settings(config: BrokerConfig, index: int) -> dict[str, str]:
    own = {"log.dirs": ",".join(member_folder(folder, index) for folder in config.log_dirs)}
    if config.broker_id >= 0:
        own["broker.id"] = str(config.broker_id + index)
        if config["node.id"] >= 0:
            own["node.id"] = own["broker.id"]
    own["listeners"] = _text(config.listeners, index)
    if config[METRICS_LISTENER]:
        metrics = metrics_listener(config[METRICS_LISTENER])
        own[METRICS_LISTENER] = address_text(metrics.host, _shifted(metrics.port, index))
    given = config.static_texts
    if "advertised.listeners" in given or any(key.startswith("advertised.") for key in config.old_address):
        own["advertised.listeners"] = _text(config.advertised_listeners, index)
    # `listeners` has precedence; other values here would contradict it.
    own.update({key: str(_shifted(int(config.old_address[key]), index)) for key in _old_ports(config)})
    return own


def _old_ports(config: BrokerConfig) -> list[str]:
    return [key for key in OLD_ADDRESS_KEYS if key.endswith("port") and config.old_address.get(key, "").isdigit()]


def _text(listeners: Sequence[Listener], index: int) -> str:
    return ",".join(one._replace(port=_shifted(one.port, index)).text for one in listeners)


def _shifted(port: int, index: int) -> int:
    return port + index if port else 0


def _check_room(key: str, listeners: Sequence[Listener], count: int) -> None:
    ports = sorted({one.port for one in listeners if one.port})
    shown = ",".join(one.text for one in listeners)
    for low, high in pairwise(ports):
        if high - low < count:
            raise ConfigError(
                key,
                shown,
                f"{count} brokers count up from each port, so ports {low} and {high} must be at least {count} apart",
            )
    _check_end(key, listeners, count)


def _check_end(key: str, listeners: Sequence[Listener], count: int) -> None:
    last = max((one.port for one in listeners), default=0)
    if last and last + count - 1 > 65535:
        shown = ",".join(one.text for one in listeners)
        raise ConfigError(
            key,
            shown,
            f"the {count} brokers need the ports {last} to {last + count - 1}, and the highest port is 65535",
        )


def copies_for(count: int, given: Collection[str], keys: Sequence[str]) -> dict[str, str]:
    """Return those of these replication factors that are not set, as three or the number of brokers if it is less."""
    return {key: str(min(3, count)) for key in keys if key not in given}
