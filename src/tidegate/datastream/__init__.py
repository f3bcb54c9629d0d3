"""The fluent surface of a program; each call adds one node."""
