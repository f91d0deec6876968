"""What `gregor doctor` sees on the broker's own machine: settings, addresses, folders, limits."""

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
    """The settings of a broker of this machine, and what its folders say; beside them the cluster that was asked."""
    try:
        config = BrokerConfig.load(path)
    except OSError as error:
        return None, [Finding(Level.WRONG, f"{path} cannot be read: {error.strerror}", "name the broker's own file")]
    except ConfigError as error:
        return None, [Finding(Level.WRONG, f"{path}: {error}", "a broker does not start with it; correct this line")]
    found = [Finding(Level.NOTE, f"{path}: {warning}", "correct or remove the line") for warning in config.warnings]
    found.append(Finding(Level.OK, f"{path}: the settings can be taken"))
    for folder in config.log_dirs:
        found += check_folder(folder, config, cluster_id)
    return config, found + check_addresses(config) + check_number(config, live)


def check_addresses(config: BrokerConfig, resolve: Resolve = socket.getaddrinfo) -> list[Finding]:
    """Whether the settings name addresses of this machine to listen on, and such that there are to send others to."""
    found = []
    for one in config.listeners:
        try:
            if one.host and not any(_is_own(address[0], address[4]) for address in resolve(one.host, 0)):
                remedy = (
                    "name one of its addresses, or 0.0.0.0; what others are to use belongs into advertised.listeners"
                )
                found.append(Finding(Level.WRONG, f"listeners: {one.host} is no address of this machine", remedy))
        except OSError:
            remedy = "name an address of this machine, or 0.0.0.0 for all"
            found.append(Finding(Level.WRONG, f"listeners: there is no host {one.host}", remedy))
    for one in config.advertised_listeners:
        try:
            if one.host and one not in config.listeners:
                resolve(one.host, 0)
        except OSError:
            text = f"advertised.listeners: there is no host {one.host}, at least not for this machine"
            found.append(Finding(Level.WRONG, text, "have it resolved (DNS, /etc/hosts), or name one that is"))
    return found


def _is_own(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def check_number(config: BrokerConfig, live: Mapping[int, tuple[str, int]]) -> list[Finding]:
    """Whether another broker has the number in the settings. `live`: hosts and ports of those that are there."""
    found = live.get(config.broker_id)
    if found is None:
        return []
    host, port = found
    mine = [one for one in config.advertised_listeners if not one.port or (one.port == port and one.host in ("", host))]
    there = f"broker {config.broker_id} is in the cluster already, as {address_text(host, port)}"
    if not any(os.path.exists(f"{folder}/{META_PROPERTIES_FILE}") for folder in config.log_dirs):
        text = f"{there}, and its data is not in log.dirs={','.join(config.log_dirs)}"
        return [Finding(Level.WRONG, text, "give this broker another broker.id; if it is that one, correct log.dirs")]
    if not mine:
        said = ",".join(one.text for one in config.advertised_listeners)
        text = f"{there}, and these settings say {said}"
        return [Finding(Level.NOTE, text, "if it is that one, restart it to have them; else give another broker.id")]
    return []


def check_folder(folder: str, config: BrokerConfig, cluster_id: str | None) -> list[Finding]:
    """One data folder: whether it can be used, and whose it is."""
    if not os.path.isdir(folder):
        parent = os.path.dirname(os.path.abspath(folder))
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        if os.access(parent, os.W_OK):
            return [Finding(Level.NOTE, f"{folder} does not exist yet", "the broker creates it when it starts")]
        text = f"{folder} does not exist, and only the owner of {parent} can create it"
        return [Finding(Level.WRONG, text, "create it, and make the user that runs the broker its owner")]
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        text = f"{folder} cannot be written by this user"
        return [Finding(Level.WRONG, text, f"run as the broker's user; if this is it: chown -R its files in {folder}")]
    found = []
    usage = shutil.disk_usage(folder)
    if usage.free < usage.total * 0.05:
        text = f"{folder}: {usage.free / usage.total:.0%} of the volume is free"
        found.append(Finding(Level.WRONG, text, "add room, or lower retention.ms or retention.bytes of large topics"))
    try:
        with open(f"{folder}/{META_PROPERTIES_FILE}", "rb") as file:
            meta = parse_meta_properties(file.read(), f"{folder}/{META_PROPERTIES_FILE}")
    except FileNotFoundError:
        return [*found, Finding(Level.OK, f"{folder} is a folder that no broker has used yet")]
    except (OSError, MalformedFile) as error:
        remedy = "restore it from another data folder of this broker, or write broker.id and cluster.id by hand"
        return [*found, Finding(Level.WRONG, str(error), remedy)]
    return [*found, *_check_owner(folder, meta, config, cluster_id)]


def _check_owner(folder: str, meta: MetaProperties, config: BrokerConfig, cluster_id: str | None) -> list[Finding]:
    found = []
    file = f"{folder}/{META_PROPERTIES_FILE}"
    if meta.broker_id is not None and config.broker_id >= 0 and meta.broker_id != config.broker_id:
        text = f"{file} is of broker {meta.broker_id}, the settings are of broker {config.broker_id}"
        found.append(Finding(Level.WRONG, text, "correct broker.id or log.dirs; the data belongs to the number in it"))
    if cluster_id and meta.cluster_id and meta.cluster_id != cluster_id:
        text = f"{file} is of cluster {meta.cluster_id}, the brokers asked are of {cluster_id}"
        found.append(Finding(Level.WRONG, text, "correct zookeeper.connect (its chroot, too) or log.dirs"))
    return found or [Finding(Level.OK, f"{folder} belongs to broker {meta.broker_id} of cluster {meta.cluster_id}")]


def check_limits(hard_limit: int | None = None) -> list[Finding]:
    """How many files and connections a broker started from here could have. `hard_limit`: of `ulimit -n`."""
    if hard_limit is None:
        if sys.platform == "win32":
            return []
        import resource

        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard_limit == resource.RLIM_INFINITY:
            hard_limit = ENOUGH_DESCRIPTORS
    text = f"a broker started by this user may have {hard_limit} files and connections (ulimit -Hn)"
    if hard_limit >= ENOUGH_DESCRIPTORS:
        return [Finding(Level.OK, text)]
    remedy = f"LimitNOFILE={ENOUGH_DESCRIPTORS} in its systemd unit, or nofile in /etc/security/limits.conf"
    return [Finding(Level.WRONG if hard_limit < FEW_DESCRIPTORS else Level.NOTE, text, remedy)]
