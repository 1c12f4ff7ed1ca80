"""A running `clew serve`, for tests of it."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass


@dataclass
class Server:
    process: subprocess.Popen[str]
    url: str

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)
