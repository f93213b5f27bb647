"""One run as its runner sees it, the trees that a worker serves, and which workers are alive.

Jobs and schedules are in `app.engine`.
"""
