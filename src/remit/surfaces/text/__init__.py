"""Text for terminals and logs: control characters removed, progress lines, writing to pipes.

Pages and tables of the command line are in `surfaces.cli.output`.
"""
