"""Leaders and followers of partitions: controller, partitions, metadata store."""
