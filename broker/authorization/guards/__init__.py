"""Guards: the checks that Apache Kafka makes before it serves a request, one module for each family of APIs."""
