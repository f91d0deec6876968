"""Settings of the transaction coordinator."""

from gregor.config.broker import BrokerConfig
from gregor.coordinator.txn.config import TransactionConfig


def test_defaults_are_those_of_the_broker() -> None:
    assert TransactionConfig.from_broker(BrokerConfig({})) == TransactionConfig()


def test_every_setting_is_read() -> None:
    broker = BrokerConfig(
        {
            "transaction.max.timeout.ms": "1",
            "transactional.id.expiration.ms": "2",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "3",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "4",
            "request.timeout.ms": "5",
            "transaction.state.log.load.buffer.size": "6",
        }
    )
    assert TransactionConfig.from_broker(broker) == TransactionConfig(1, 2, 3, 4, 5, 6)
