"""The stored conversations of tasks: what was said, what the model reads of it, and transcripts.

The loop that continues a conversation is in `app.agent_loop`.
"""
