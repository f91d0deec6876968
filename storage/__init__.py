"""The files of partitions and data folders."""
