"""The process of a slot: how it begins, its guard, and what it prints."""
