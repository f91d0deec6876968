"""The synchronous client of a cluster for the source and the sinks, on protocol.sync_client: no Spark, no Arrow."""
