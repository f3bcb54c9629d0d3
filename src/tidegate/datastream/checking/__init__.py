"""Checks of a program while it is written, so that errors name the line of the call."""
