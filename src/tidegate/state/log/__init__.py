"""The changelog: every change of keyed state since a snapshot of all of it."""
