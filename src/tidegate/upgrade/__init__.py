"""The dry run of an upgrade: a program laid over a snapshot, with nothing started."""
