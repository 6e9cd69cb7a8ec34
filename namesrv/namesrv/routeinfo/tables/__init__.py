"""The four tables and their indexes, without lock, clock and I/O, and the effects of their changes."""
