"""The event stores (SQLite, PostgreSQL and memory) and the modules that they share.

`ports` lists the guarantees of all stores.
"""
