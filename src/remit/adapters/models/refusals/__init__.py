"""Refusals of model endpoints: recognized by status and wording, and remembered per endpoint.

Requests are built in `wires`.
"""
