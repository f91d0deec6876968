"""The metadata store: a tree of nodes, in ZooKeeper or embedded."""
