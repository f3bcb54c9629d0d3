"""Process functions of one stream, of two and with broadcast state, and the joins made of them."""
