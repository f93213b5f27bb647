"""Language models: which gateway a model means, prices, the offline model and pydantic-ai.

Our own HTTP clients are in `wires`.
"""
