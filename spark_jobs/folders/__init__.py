"""Files on a file system that Spark reaches."""
