"""The rows of the command table by subject, and their shared arguments.

`surfaces.cli.command_table` puts them together; the actions are in `surfaces.cli.actions`.
"""
