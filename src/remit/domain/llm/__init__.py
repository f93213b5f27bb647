"""Conversations with language models in provider-neutral terms: messages, failures, model
selection.

The providers' formats are in `adapters.models`.
"""
