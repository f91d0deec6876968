"""The controller of this process, active or not, and the channels to the active one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gregor.broker.features.consumer_groups import ConsumerGroupsOfBrokers
from gregor.broker.features.downgrade import FeatureDowngrade
from gregor.broker.features.new_transactions import NewTransactionsOfBrokers
from gregor.broker.features.updates import FeatureUpdates
from gregor.replication.admin.features import FeatureAdmin
from gregor.replication.channels.broker_channels import Brokers
from gregor.replication.channels.controller_channel import ControllerChannel
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.loop import ControllerLoop

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
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


def controller_parts(
    config: BrokerConfig, base: BaseParts, gate: Gate, clock_ms: Callable[[], int], *, in_cluster: bool
) -> ControllerParts:
    """Make the parts; `loop.start()` stands for election."""
    listener = config.inter_broker_listener_name
    timeout_ms: int = config["controller.socket.timeout.ms"]
    security = base.security
    loop = ControllerLoop(
        config.broker_id,
        base.store,
        Brokers(config.broker_id, base.local, lambda: loop.live_brokers, listener, timeout_ms, gate, security),
        base.configs,
        clock_ms,
        gate,
        listener=listener,
        delete_topics=config["delete.topic.enable"],
        before_removals=None if in_cluster else base.removed.sync,
    )
    base.recovering.on_deferred_response.append(loop.handle_deferred_response)
    answers = ControllerAnswers(loop, base.store)

    def new_link() -> ControllerChannel:
        return ControllerChannel(config.broker_id, base.image, answers, listener, timeout_ms, gate, security=security)

    return ControllerParts(loop, answers, new_link)


def feature_admin(
    config: BrokerConfig,
    base: BaseParts,
    control: ControllerParts,
    coordinators: Coordinators,
    background: Background,
    *,
    in_cluster: bool,
) -> FeatureUpdates:
    """Make the part that changes the finalised features, with the transactions and groups that a downgrade ends."""
    subjects = NewTransactionsOfBrokers(coordinators.transactions), ConsumerGroupsOfBrokers(coordinators.groups)
    works = {
        one.feature: FeatureDowngrade(config, base.features, base.image, one, background.gate, security=base.security)
        for one in subjects
    }
    admin = FeatureAdmin(base.store, control.loop, base.features, works, in_cluster=in_cluster)
    return FeatureUpdates(admin, background.spawn)
