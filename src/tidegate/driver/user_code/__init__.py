"""The user's code that runs in the driver: coordinators, hooks, enrichers, listeners."""
