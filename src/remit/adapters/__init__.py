"""Implementations of the ports: stores, the job engine, models, tools and the clock.

Use cases are not imported here.
"""
