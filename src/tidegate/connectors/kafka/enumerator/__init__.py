"""The driver's half of a Kafka source. Older checkpoints pickled `EnumeratorState` as from here."""

from tidegate.connectors.kafka.enumerator.dealing import EnumeratorState

__all__ = ["EnumeratorState"]
