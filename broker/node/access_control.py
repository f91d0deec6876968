"""The access rules of the cluster and the authorizer that decides by them, where authorizer.class.name selects it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.node.store import StartError
from gregor.config.tables.authorizer_keys import AUTHORIZER_CLASSES, parse_super_users

if TYPE_CHECKING:
    from gregor.broker.authorization.authorizer import BuiltInAuthorizer
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.entities.acls import AclStore
    from gregor.replication.store.metadata_store import MetadataStore


class AccessControl(NamedTuple):
    authorizer: BuiltInAuthorizer
    acls: AclStore

    async def start(self) -> None:
        """Read all rules, before the first connection is served. Raises StartError, StoreError."""
        from gregor.replication.store.nodes import NodeFormatError

        try:
            await self.acls.start()
        except NodeFormatError as error:
            raise StartError(
                f"access rules cannot be decoded, so nothing is served; correct the node's value or delete it: {error}"
            ) from error


def make_access_control(
    config: BrokerConfig, store: MetadataStore, background: Background, clock_ms: Callable[[], int]
) -> AccessControl | None:
    """Return None if no authorizer is configured; its modules are not loaded then."""
    class_name = config["authorizer.class.name"]
    if class_name not in AUTHORIZER_CLASSES:
        return None
    from gregor.broker.authorization.authorizer import BuiltInAuthorizer
    from gregor.broker.authorization.rules import AuthorizerClass
    from gregor.replication.entities.acls import AclStore

    authorizer = BuiltInAuthorizer(
        AuthorizerClass(class_name),
        parse_super_users(config["super.users"]),
        allow_everyone=config["allow.everyone.if.no.acl.found"],
    )
    acls = AclStore(store, background.spawn, clock_ms)
    acls.on_changed.append(authorizer.replace_rules)
    return AccessControl(authorizer, acls)
