"""The bytes of our snapshots, and the only place that parses them."""
