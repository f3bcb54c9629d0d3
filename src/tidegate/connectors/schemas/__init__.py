"""How values become bytes in a message, and back: text, JSON and CSV."""
