"""The quotas as they are in the metadata store: read at the start, and again whenever an entity has changed."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

from gregor.broker.jobs.background import Background
from gregor.broker.log import logger
from gregor.broker.quotas.quotas import Quotas
from gregor.replication.entities.quotas import Limits, QuotaEntity, QuotaStore, entity_of_node
from gregor.replication.store.topic_configs import TopicConfigs


class FollowedQuotas:
    """Keeps the limits of a broker as they are in the nodes."""

    def __init__(self, nodes: QuotaStore, quotas: Quotas, background: Background) -> None:
        self.nodes = nodes
        self._quotas = quotas
        self._enforce: Callable[[Quotas | None], None] = lambda quotas: None
        self._background = background
        self._limits: dict[QuotaEntity, Limits] = {}

    async def start(self, configs: TopicConfigs, enforce: Callable[[Quotas | None], None]) -> None:
        """Read all quotas and follow their changes. `enforce` is called with the quotas, or None while none is set."""
        self._enforce = enforce
        configs.on_entities_changed.append(self._changed)
        await self._read_all()

    @property
    def limits(self) -> dict[QuotaEntity, Limits]:
        """All limits by entity."""
        return self._limits

    async def refresh(self, entity: QuotaEntity) -> None:
        """Read the quotas of one entity again."""
        limits = await self.nodes.read(entity)
        if limits == self._limits.get(entity, {}):
            return
        logger.info("quotas of %s: %s", entity.text, ", ".join(f"{k}={v:.15g}" for k, v in limits.items()) or "none")
        if limits:
            self._limits[entity] = limits
        else:
            del self._limits[entity]
        await self._apply()

    async def is_known_host(self, host: str) -> bool:
        """Return whether a host is an address, or a name that has one."""
        return bool(await self._addresses_of(host))

    async def _addresses_of(self, host: str) -> list[str]:
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:  # a name server may need seconds
            return await self._background.read(addresses_of, host)

    async def _changed(self, config_type: str, node_name: str | None) -> None:
        if node_name is None:
            await self._read_all()
        elif (entity := entity_of_node(config_type, node_name)) is not None:
            await self.refresh(entity)

    async def _read_all(self) -> None:
        self._limits = await self.nodes.read_all()
        if self._limits:
            logger.info("quotas of %d users, client ids and addresses are in effect", len(self._limits))
        await self._apply()

    async def _apply(self) -> None:
        limits = dict(self._limits)
        for entity in [one for one in limits if isinstance(one.ip, str)]:
            found = limits.pop(entity)
            for address in await self._addresses_of(str(entity.ip)):
                limits[QuotaEntity(ip=address)] = found
        self._quotas.update(limits)
        self._enforce(None if self._quotas.is_empty else self._quotas)


def addresses_of(host: str) -> list[str]:
    """Return the addresses of a host; empty if there is none of this name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        logger.warning("the name of the host %s cannot be resolved: %s", host, error)
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
