"""The loop of a running agent: model turns, tool calls, limits and the budget.

Messages are in `app.conversations`, calls that start sub-agents in `app.subagents`.
"""
