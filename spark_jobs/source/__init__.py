"""`format("gregor")`: topics as a Python data source of Spark, without a jar; only `datasource` imports PySpark."""
