"""A Spark cluster for trying jobs, and the checks of the Python that its workers run."""
