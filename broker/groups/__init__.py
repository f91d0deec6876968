"""What the coordinator of groups knows of this broker: the topics of the cluster, settings, the finalised level."""
