"""Who leads and who follows: controller, partitions, metadata store."""
