"""Live brokers as a downgrade of a feature sees them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gregor.broker.features.downgrade import FeatureDowngrade
from gregor.config.broker import BrokerConfig
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

EPOCH = 7


class OtherBroker:
    """Another broker. `epochs` are those that it shows, one after the other; the last one repeatedly."""

    def __init__(self, epochs: tuple[int, ...] = (EPOCH,)) -> None:
        self.epochs = list(epochs)
        self.closed = False
        self.describes = True

    async def send(self, request: Any, version: int | None = None) -> Any:
        if isinstance(request, ApiVersionsRequest):
            epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
            return ApiVersionsResponse(finalized_features_epoch=epoch)
        return await self.answer(request)

    async def answer(self, request: Any) -> Any:
        raise NotImplementedError

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        assert api_key == ApiKey.CONSUMER_GROUP_DESCRIBE
        return (0, 1) if self.describes else None

    def close(self) -> None:
        self.closed = True


def downgrade_on(subject: Any, *others: OtherBroker) -> FeatureDowngrade:
    """Return the downgrade on broker 0, which is in the phase; the others have the ids from 1 on."""
    brokers = {
        broker_id: SimpleNamespace(endpoints={"PLAINTEXT": SimpleNamespace(host="host", port=broker_id)})
        for broker_id in range(len(others) + 1)
    }
    image: Any = SimpleNamespace(brokers=brokers)
    features: Any = SimpleNamespace(finalized=SimpleNamespace(epoch=EPOCH))
    gate: Any = None
    new_peer: Any = lambda host, port: others[port - 1]  # noqa: E731
    config = BrokerConfig({"broker.id": "0", "log.dirs": "d"})
    return FeatureDowngrade(config, features, image, subject, gate, new_peer=new_peer, poll_s=0)
