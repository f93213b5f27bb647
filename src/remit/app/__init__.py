"""Use cases: everything that combines the domain with the ports.

Nothing here knows a database, a provider or a surface.
"""
