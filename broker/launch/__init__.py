"""Several processes on one machine: brokers and a ZooKeeper."""
