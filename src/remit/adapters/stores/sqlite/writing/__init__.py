"""The writing side of the embedded store: the opened file, the one connection that writes, and the
thread that uses it. Commands that only read do not import this.
"""
