"""The process that builds a program: what it is told from outside, and how it ends."""
