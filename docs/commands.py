"""Write the options of all commands into docs/cli.md, below its last mark.

    python docs/commands.py docs/cli.md

What stands above the mark is written by hand; `make picture` does this as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clew.cli.manual import describe_commands

MARK = "<!-- made by docs/commands.py: everything below -->\n"


def renew(text: str) -> str:
    """The page with the options as they are now."""
    return f"{text.partition(MARK)[0].rstrip()}\n\n{MARK}\n{describe_commands()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    file.write_text(renew(file.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
