"""A runner for tests of the command line: its process is told to stop while it starts."""

import os
import signal

from remit.testing import Scripted


class Hasty(Scripted):
    """Sends SIGTERM to its own process when it is made."""

    def __init__(self) -> None:
        super().__init__()
        os.kill(os.getpid(), signal.SIGTERM)
