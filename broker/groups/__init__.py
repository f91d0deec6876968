"""The group coordinator's view of the broker: the topics of the cluster, settings, the finalised level."""
