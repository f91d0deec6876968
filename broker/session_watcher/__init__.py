"""A process that closes the ZooKeeper session of a broker that has died, so that its partitions get leaders at once.

The kernel closes the connection between the two when the broker ends, for whatever reason, and at no other time: no
living broker's session is closed. A frozen broker, a cut link and a lost host are left to the session's timeout.
"""
