"""The checks of `gregor doctor` on the machine of a broker: settings, addresses, folders, limits."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gregor.broker.cli.doctor.checks import Finding, Level
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.listeners import address_text
from gregor.storage.folders.checkpoints import MalformedFile
from gregor.storage.folders.identity import META_PROPERTIES_FILE, MetaProperties, parse_meta_properties

ENOUGH_DESCRIPTORS = 65_536
FEW_DESCRIPTORS = 4096

Resolve = Callable[[str, int], Sequence[tuple[Any, ...]]]


def check_config(
    path: str, cluster_id: str | None, live: Mapping[int, tuple[str, int]] = {}
) -> tuple[BrokerConfig | None, list[Finding]]:
    """Check the settings of a broker of this machine, and its folders against the observed cluster."""
    try:
        config = BrokerConfig.load(path)
    except OSError as error:
        return None, [
            Finding(
                Level.WRONG,
                f"{path} cannot be read: {error.strerror}",
                "give the path of the broker's server.properties",
            )
        ]
    except ConfigError as error:
        return None, [Finding(Level.WRONG, f"{path}: {error}", "correct this setting; a broker does not start with it")]
    found = [Finding(Level.NOTE, f"{path}: {warning}", "correct or remove the setting") for warning in config.warnings]
    found.append(Finding(Level.OK, f"{path}: the settings are legal"))
    for folder in config.log_dirs:
        found += check_folder(folder, config, cluster_id)
    return config, found + check_addresses(config) + check_number(config, live)


def check_addresses(config: BrokerConfig, resolve: Resolve = socket.getaddrinfo) -> list[Finding]:
    """Check that listeners are addresses of this machine, and that advertised hosts can be resolved."""
    found = []
    for one in config.listeners:
        try:
            if one.host and not any(_is_own(address[0], address[4]) for address in resolve(one.host, 0)):
                remedy = "use one of its addresses, or 0.0.0.0; the address for clients belongs in advertised.listeners"
                found.append(Finding(Level.WRONG, f"listeners: {one.host} is not an address of this machine", remedy))
        except OSError:
            remedy = "use an address of this machine, or 0.0.0.0 for all"
            found.append(Finding(Level.WRONG, f"listeners: {one.host} is not a known host", remedy))
    for one in config.advertised_listeners:
        try:
            if one.host and one not in config.listeners:
                resolve(one.host, 0)
        except OSError:
            text = f"advertised.listeners: this machine cannot resolve {one.host}"
            found.append(Finding(Level.WRONG, text, "add the name to DNS or /etc/hosts, or use another one"))
    return found


def _is_own(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def check_number(config: BrokerConfig, live: Mapping[int, tuple[str, int]]) -> list[Finding]:
    """Check that no other broker has the number in the settings. `live`: hosts and ports of the live brokers."""
    found = live.get(config.broker_id)
    if found is None:
        return []
    host, port = found
    mine = [one for one in config.advertised_listeners if not one.port or (one.port == port and one.host in ("", host))]
    there = f"broker {config.broker_id} is already in the cluster, at {address_text(host, port)}"
    if not any(os.path.exists(f"{folder}/{META_PROPERTIES_FILE}") for folder in config.log_dirs):
        text = f"{there}, and log.dirs={','.join(config.log_dirs)} does not contain its data"
        return [
            Finding(Level.WRONG, text, "if this is another broker, give it another broker.id; else correct log.dirs")
        ]
    if not mine:
        addresses = ",".join(one.text for one in config.advertised_listeners)
        text = f"{there}, and these settings advertise {addresses}"
        return [
            Finding(Level.NOTE, text, "if it is this broker, restart it to apply them; else give another broker.id")
        ]
    return []


def check_folder(folder: str, config: BrokerConfig, cluster_id: str | None) -> list[Finding]:
    """Check that a data folder is usable and belongs to this broker."""
    if not os.path.isdir(folder):
        parent = os.path.dirname(os.path.abspath(folder))
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        if os.access(parent, os.W_OK):
            return [Finding(Level.NOTE, f"{folder} does not exist yet", "the broker creates it when it starts")]
        text = f"{folder} does not exist, and this user cannot create it in {parent}"
        return [Finding(Level.WRONG, text, "create it, and make the user of the broker its owner")]
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        text = f"this user cannot write to {folder}"
        return [
            Finding(
                Level.WRONG,
                text,
                f"run this command as the user of the broker; if you do, change the owner with chown -R USER {folder}",
            )
        ]
    found = []
    usage = shutil.disk_usage(folder)
    if usage.free < usage.total * 0.05:
        text = f"{folder}: {usage.free / usage.total:.0%} of the volume is free"
        found.append(Finding(Level.WRONG, text, "add space, or lower retention.ms or retention.bytes of large topics"))
    try:
        with open(f"{folder}/{META_PROPERTIES_FILE}", "rb") as file:
            meta = parse_meta_properties(file.read(), f"{folder}/{META_PROPERTIES_FILE}")
    except FileNotFoundError:
        return [*found, Finding(Level.OK, f"no broker has used {folder} yet")]
    except (OSError, MalformedFile) as error:
        remedy = "restore it from another data folder of this broker, or write broker.id and cluster.id by hand"
        return [*found, Finding(Level.WRONG, str(error), remedy)]
    return [*found, *_check_owner(folder, meta, config, cluster_id)]


def _check_owner(folder: str, meta: MetaProperties, config: BrokerConfig, cluster_id: str | None) -> list[Finding]:
    found = []
    file = f"{folder}/{META_PROPERTIES_FILE}"
    if meta.broker_id is not None and config.broker_id >= 0 and meta.broker_id != config.broker_id:
        text = f"{file} belongs to broker {meta.broker_id}, the settings to broker {config.broker_id}"
        found.append(
            Finding(Level.WRONG, text, "correct broker.id or log.dirs; the data belongs to the broker in that file")
        )
    if cluster_id and meta.cluster_id and meta.cluster_id != cluster_id:
        text = f"{file} belongs to cluster {meta.cluster_id}, the observed brokers to {cluster_id}"
        found.append(Finding(Level.WRONG, text, "correct zookeeper.connect with its chroot, or log.dirs"))
    return found or [Finding(Level.OK, f"{folder} belongs to broker {meta.broker_id} of cluster {meta.cluster_id}")]


def check_limits(hard_limit: int | None = None) -> list[Finding]:
    """Check the limit of open files and connections of a broker started by this user (`ulimit -Hn`)."""
    if hard_limit is None:
        if sys.platform == "win32":
            return []
        import resource

        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard_limit == resource.RLIM_INFINITY:
            hard_limit = ENOUGH_DESCRIPTORS
    text = f"a broker of this user can open {hard_limit} files and connections (ulimit -Hn)"
    if hard_limit >= ENOUGH_DESCRIPTORS:
        return [Finding(Level.OK, text)]
    remedy = f"set LimitNOFILE={ENOUGH_DESCRIPTORS} in its systemd unit, or nofile in /etc/security/limits.conf"
    return [Finding(Level.WRONG if hard_limit < FEW_DESCRIPTORS else Level.NOTE, text, remedy)]
