"""Engines read lines, compute tables and write them; the analysis is the same on each."""
