"""Actions of commands that are more than one operation of the catalog, and their exit codes.

The rows that name these functions are in `surfaces.cli.commands`, their output is in
`surfaces.cli.output`.
"""
