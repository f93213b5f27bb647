"""Every text that an agent or an outside session reads, and which tools an agent is offered.

Messages in provider-neutral form are in `domain.llm`.
"""
