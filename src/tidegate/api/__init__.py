"""The contract between user code and the engine."""
