"""Files as sources and sinks: Parquet, CSV, JSON lines and lines of text."""
