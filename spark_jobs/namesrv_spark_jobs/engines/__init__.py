"""Engines: what reads lines, computes tables and writes them; the analysis itself is the same for all."""
