"""Driver and slots on this machine, without Spark or Java."""
