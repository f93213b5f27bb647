"""The command line: parsing, the table of commands and what each command does.

How answers look is in `surfaces.cli.output`.
"""
