"""Agents, the tools they may use, and the media that they can see.

The texts that an agent reads are in `domain.prompts`.
"""
