"""Jobs on Spark: the only room that knows PySpark."""
