"""Reporters of metrics, each through the client of the system that it reports to."""
