"""The controller of this process, active or not, and the channels to the active one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.broker.cluster.transaction_downgrade import TransactionDowngrade
from gregor.broker.groups.downgrade import GroupDowngrade
from gregor.replication.admin.features import DowngradeSteps, FeatureAdmin
from gregor.replication.channels.broker_channels import Brokers
from gregor.replication.channels.controller_channel import ControllerChannel
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.loop import ControllerLoop

if TYPE_CHECKING:
    from gregor.broker.node.base_parts import BaseParts
    from gregor.broker.node.coordinators import Coordinators
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Gate


@dataclass(slots=True, frozen=True)
class ControllerParts:
    """The election and the decisions of the controller, its answers to requests, and channels to the active one."""

    loop: ControllerLoop
    answers: ControllerAnswers
    new_link: Callable[[], ControllerChannel]
    """Makes a channel to the active controller, for one request at a time."""


def controller_parts(config: BrokerConfig, base: BaseParts, gate: Gate, clock_ms: Callable[[], int]) -> ControllerParts:
    """Make the parts; `loop.start()` stands for election."""
    listener = config.inter_broker_listener_name
    timeout_ms: int = config["controller.socket.timeout.ms"]
    loop = ControllerLoop(
        config.broker_id,
        base.store,
        Brokers(config.broker_id, base.local, lambda: loop.live_brokers, listener, timeout_ms, gate),
        base.configs,
        clock_ms,
        gate,
        listener=listener,
        delete_topics=config["delete.topic.enable"],
    )
    base.recovering.on_deferred_response.append(loop.handle_deferred_response)
    answers = ControllerAnswers(loop, base.store)
    return ControllerParts(
        loop, answers, lambda: ControllerChannel(config.broker_id, base.image, answers, listener, timeout_ms, gate)
    )


def feature_admin(
    config: BrokerConfig,
    base: BaseParts,
    control: ControllerParts,
    coordinators: Coordinators,
    gate: Gate,
    *,
    in_cluster: bool,
) -> FeatureAdmin:
    """Make the part that changes the finalised features, with the transactions and groups that a downgrade ends."""
    transactions = TransactionDowngrade(config, base.image, coordinators.transactions, gate)
    groups = GroupDowngrade(config, base.image, coordinators.groups, gate)
    steps = DowngradeSteps([transactions.prepare, groups.prepare], [groups.complete])
    return FeatureAdmin(base.store, control.loop, base.features, steps, in_cluster=in_cluster)
