"""What the end-to-end tests of all runtimes share: programs, a watch, counts."""
