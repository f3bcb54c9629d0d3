"""How a failure is answered: what it means, what restarts, and when."""
