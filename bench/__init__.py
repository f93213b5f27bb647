"""Measurements of remit against bare code doing the same work, as ratios within one run."""
