"""Bash: processes, the sandbox, and the toolchains that commands can use.

File tools are in `adapters.tools.file_tools`.
"""
