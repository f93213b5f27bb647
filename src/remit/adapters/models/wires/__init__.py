"""HTTP clients for model endpoints: OpenAI chat, OpenAI Responses and Anthropic messages.

`refusals` learns what an endpoint refuses.
"""
