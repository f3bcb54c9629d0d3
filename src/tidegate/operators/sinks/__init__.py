"""Sinks: writers, and what they have prepared until its commit is confirmed."""
