"""How the command line shows answers: pages, tables, live progress and next steps.

Everything is written through `terminal`.
"""
