"""Functions and operators behind the calls on streams."""
