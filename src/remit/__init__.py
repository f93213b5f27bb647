"""remit: hand work to agents under a durable contract."""

__version__ = "0.1.0"
