"""Every question that a store can be asked: its name, its parameters and the type of its rows.

The SQL is in `adapters/stores/queries`, in a file with the name of each module here.
"""
