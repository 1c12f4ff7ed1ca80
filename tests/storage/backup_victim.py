"""Run by tests: makes or restores a backup, and kills itself on the way.

    backup_victim.py backup|restore FILE FOLDER STORE N

N is which of its steps it does not survive: a word of progress, or a file that is about to take its
name. It says how many there were if it gets to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import clew


class Steps:
    def __init__(self, last: int):
        self.count, self.last = 0, last

    def step(self, *_: Any) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    what, file, folder, store, last = sys.argv[1:]
    steps = Steps(int(last))
    for owner, name in ((Path, "replace"), (os, "fsync"), (os, "link")):
        real = getattr(owner, name)

        def around(*given: Any, real: Any = real) -> Any:
            steps.step()
            done = real(*given)
            steps.step()
            return done

        setattr(owner, name, around)
    if what == "backup":
        with clew.open(folder, store=store, model="none") as engine:
            engine.backup(file, force=True, progress=steps.step)
    else:
        clew.restore_backup(file, folder, force=True, progress=steps.step)
    print(steps.count)


if __name__ == "__main__":
    main()
