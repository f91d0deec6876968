"""PySpark jobs that read and write topics."""
