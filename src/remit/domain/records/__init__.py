"""Frozen records: how they are declared, validated, described as JSON Schema and serialized.

The records themselves are defined with their subject.
"""
