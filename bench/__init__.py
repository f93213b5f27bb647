"""Compares remit with plain code that does the same work, as ratios within one run."""
