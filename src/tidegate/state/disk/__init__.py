"""Keyed state on disk, in RocksDB: a write-back cache over one ordered key space an operator."""
