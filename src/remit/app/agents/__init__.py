"""The known agents: built-in ones, their role prompts, and agents from files.

The definition of an agent is in `domain.agents`.
"""
