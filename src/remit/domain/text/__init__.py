"""Rules for text that people and models read: numbers with nouns, truncation, redacted secrets.

Prompts are in `domain.prompts`.
"""
