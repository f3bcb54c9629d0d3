"""The seam between jobs and Spark, for classic sessions and for Spark Connect."""
