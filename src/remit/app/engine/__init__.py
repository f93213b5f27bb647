"""Handling of jobs by a worker: runs, schedules, recovery and the log.

The loop of an agent is in `app.agent_loop`.
"""
