"""The parts of the broker that handlers of one part get in place of the whole (registry.on_part)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gregor.broker.features.updates import FeatureUpdates
    from gregor.broker.security.parts import SecurityParts
    from gregor.broker.telemetry.telemetry import Telemetry
    from gregor.replication.controller.answers import ControllerAnswers
    from gregor.replication.entities.acls import AclStore
    from gregor.replication.entities.credentials import ScramCredentials
    from gregor.replication.entities.tokens import DelegationTokens
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler


class PartsContext(Protocol):
    """The parts that have handlers of their own."""

    @property
    def security(self) -> SecurityParts: ...
    @property
    def controller(self) -> ControllerAnswers: ...
    @property
    def controller_requests(self) -> ControllerRequestHandler: ...
    @property
    def feature_admin(self) -> FeatureUpdates: ...
    @property
    def telemetry(self) -> Telemetry | None: ...


def acl_rules(broker: PartsContext) -> AclStore | None:
    """Return the access rules; None where no authorizer is configured."""
    return broker.security.acls


def scram_credentials(broker: PartsContext) -> ScramCredentials:
    """Return the SCRAM credentials of users."""
    return broker.security.credentials


def delegation_tokens(broker: PartsContext) -> DelegationTokens:
    """Return the delegation tokens of the cluster."""
    return broker.security.tokens


def controller_answers(broker: PartsContext) -> ControllerAnswers:
    """Return the answers to requests of other brokers to this one as the controller."""
    return broker.controller


def controller_request_handler(broker: PartsContext) -> ControllerRequestHandler:
    """Return the handler of requests of the controller to this broker."""
    return broker.controller_requests


def feature_updates(broker: PartsContext) -> FeatureUpdates:
    """Return the updates of the finalised features, which the controller's broker makes."""
    return broker.feature_admin


def client_telemetry(broker: PartsContext) -> Telemetry:
    """Return the metrics that clients push. Their APIs are served only where they are shown."""
    assert broker.telemetry is not None
    return broker.telemetry
