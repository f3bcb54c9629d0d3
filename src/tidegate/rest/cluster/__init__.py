"""Many jobs behind one address: those that run are asked, those that are over have archives."""
