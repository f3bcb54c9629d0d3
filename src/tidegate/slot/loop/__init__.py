"""The loop of a slot: who has the next turn, and what runs beside the turns."""
