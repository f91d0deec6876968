"""Partition replicas of this broker, as leader and as follower."""
