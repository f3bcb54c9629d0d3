"""Sinks: their writers, and prepared output until its commit is confirmed."""
