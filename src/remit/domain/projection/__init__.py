"""Data derived from events: query rows, the stored document of a task, and jobs for the queue.

Stores write it in the transaction of the events.
"""
