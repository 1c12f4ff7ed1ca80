"""Printing without Rich, whose import takes as long as a search, and what makes it safe.

Words of documents are printed inside a block that an agent may trust, on a terminal that obeys
escape sequences. Neither may be steered by what somebody wrote into a file.
"""

from __future__ import annotations

import re
import sys

__all__ = ["BLOCK", "clean", "one_line", "write"]

BLOCK = "athena_grounding"
"""The tag around what was found."""
_TAG = r"[<＜](?=[\s/\\\u00ad\u200b-\u200f\u2060\ufeff\ufffd]*" + BLOCK + ")"
# Control characters, what turns the direction of writing, line separators, what is no character.
_UNSAFE = r"[\x00-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]"


def clean(text: str) -> str:
    """Without anything a terminal would obey and without the tags of our block.

    Each character is replaced by one other, so that ranges of the text stay where they are.
    """
    if not text.isprintable():
        text = re.sub(_UNSAFE, _shown, text)
    if BLOCK in text.lower():
        text = re.sub(_TAG, "‹", text, flags=re.IGNORECASE)
    return text


def _shown(found: re.Match[str]) -> str:
    """A control character as its picture, as ␛ for escape; white space as a space."""
    character = found[0]
    if character.isspace():
        return " "
    if character < " ":
        return chr(0x2400 + ord(character))
    return "␡" if character == "\x7f" else "\ufffd"


def one_line(text: str) -> str:
    """Cleaned, and with single spaces only: no text can look like another line of ours."""
    return " ".join(clean(text).split())


def write(text: str) -> None:
    """A line to standard output, also to one that cannot take every character."""
    try:
        print(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        print(text.encode(encoding, "replace").decode(encoding))
