"""The embedded store: one SQLite file, one writer thread.

Queries that both databases share are in `adapters/stores/queries`.
"""
