"""The security of connections to other brokers: that of the inter-broker listener, with this broker as the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.channel_security import PLAINTEXT, PLAINTEXT_CHANNEL, ChannelSecurity

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig


def security_between_brokers(config: BrokerConfig) -> ChannelSecurity:
    """Return the security of connections to the inter-broker listener of other brokers. Raises ConfigError."""
    listener = next(one for one in config.listeners if one.name == config.inter_broker_listener_name)
    if listener.security_protocol == PLAINTEXT:
        return PLAINTEXT_CHANNEL
    raise NotImplementedError
