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
            "add.partitions.to.txn.retry.backoff.ms": "5",
            "request.timeout.ms": "6",
            "transaction.state.log.load.buffer.size": "7",
        }
    )
    assert TransactionConfig.from_broker(broker) == TransactionConfig(1, 2, 3, 4, 5, 6, 7)
