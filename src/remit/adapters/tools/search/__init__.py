"""Grep and path patterns: regular expressions, globs, ignore rules and file types.

Opening files safely is in `adapters.tools.workspace_paths`.
"""
