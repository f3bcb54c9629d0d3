"""Options: Flink's keys, types and defaults, each with a sentence."""
