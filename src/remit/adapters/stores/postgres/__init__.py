"""The shared store: PostgreSQL, with batches committed by one database function.

Its migrations are SQL files in `migrations/`.
"""
