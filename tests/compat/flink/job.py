"""Copies one topic into another with Flink's Kafka connector, exactly once, on a cluster inside of this process.

Runs in an environment of its own that has PyFlink (tests/support/flink.py). Arguments: bootstrap servers, source topic,
target topic, prefix of the transactional ids, folder of the checkpoints, jar of the connector and, to continue a killed
job, the checkpoint. Prints RUNNING once the job is submitted, and ends with the job.
"""

import sys

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

CHECKPOINT_INTERVAL = "500 ms"
TRANSACTION_TIMEOUT_MS = 60_000


def main() -> None:
    bootstrap, source, target, prefix, checkpoints, jar, *checkpoint = sys.argv[1:]
    settings = {
        "pipeline.jars": f"file://{jar}",
        "parallelism.default": "2",
        "execution.checkpointing.interval": CHECKPOINT_INTERVAL,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "30",
        "restart-strategy.fixed-delay.delay": "500 ms",
        "rest.bind-port": "0",
    }
    if checkpoint:
        settings["execution.state-recovery.path"] = f"file://{checkpoint[0]}"
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    common = f"'connector' = 'kafka', 'format' = 'raw', 'properties.bootstrap.servers' = '{bootstrap}'"
    tables.execute_sql(
        f"CREATE TABLE source (line STRING) WITH ({common}, 'topic' = '{source}', "
        f"'properties.group.id' = '{prefix}', 'scan.startup.mode' = 'earliest-offset')"
    )
    tables.execute_sql(
        f"CREATE TABLE target (line STRING) WITH ({common}, 'topic' = '{target}', "
        f"'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{prefix}', "
        f"'properties.transaction.timeout.ms' = '{TRANSACTION_TIMEOUT_MS}')"
    )
    result = tables.execute_sql("INSERT INTO target SELECT line FROM source")
    print("RUNNING", flush=True)
    result.wait()


main()
