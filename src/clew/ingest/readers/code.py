"""Source code and configuration: kept as it is, less its licence, with its definitions as headings.

The definitions come from patterns and not from parsers: they have only to be good enough to cut a
file between functions and to say in which class a line stands, in any language and in any state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from clew.ingest.boilerplate import without_licence
from clew.ingest.readers.text import decode
from clew.types import Document

__all__ = ["LANGUAGES", "NAMES", "read"]

_SUFFIXES = {
    "bat": ".bat .cmd",
    "c": ".c .h",
    "c#": ".cs",
    "c++": ".cc .cpp .cxx .hh .hpp .hxx .cu",
    "clojure": ".clj .cljs .cljc .edn",
    "cmake": ".cmake",
    "css": ".css .scss .sass .less",
    "dart": ".dart",
    "elixir": ".ex .exs",
    "erlang": ".erl .hrl",
    "fortran": ".f90 .f95 .f03",
    "fsharp": ".fs .fsx",
    "go": ".go",
    "graphql": ".graphql .gql",
    "groovy": ".groovy .gradle",
    "haskell": ".hs",
    "hcl": ".tf .tfvars .hcl",
    "ini": ".ini .cfg .conf .properties",
    "java": ".java",
    "javascript": ".js .jsx .mjs .cjs .vue .svelte",
    "json": ".json .jsonc .json5",
    "julia": ".jl",
    "kotlin": ".kt .kts",
    "lisp": ".lisp .el .scm .rkt",
    "lua": ".lua",
    "nim": ".nim",
    "objective-c": ".m .mm",
    "ocaml": ".ml .mli",
    "patch": ".diff .patch",
    "perl": ".pl .pm",
    "php": ".php",
    "powershell": ".ps1 .psm1",
    "protobuf": ".proto",
    "python": ".py .pyi .pyx",
    "r": ".r",
    "ruby": ".rb .rake .gemspec",
    "rust": ".rs",
    "scala": ".scala .sc",
    "shell": ".sh .bash .zsh .fish",
    "solidity": ".sol",
    "sql": ".sql",
    "swift": ".swift",
    "toml": ".toml",
    "typescript": ".ts .tsx .mts .cts",
    "vim": ".vim",
    "xml": ".xml .xsd .xsl .xslt",
    "yaml": ".yaml .yml",
    "zig": ".zig",
}
LANGUAGES = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
"""suffix → language"""

NAMES = {
    "BUILD": "python",
    "CMakeLists.txt": "cmake",
    "Containerfile": "dockerfile",
    "Dockerfile": "dockerfile",
    "GNUmakefile": "makefile",
    "Gemfile": "ruby",
    "Jenkinsfile": "groovy",
    "Justfile": "makefile",
    "Makefile": "makefile",
    "Rakefile": "ruby",
    "Vagrantfile": "ruby",
    "justfile": "makefile",
    "makefile": "makefile",
    ".bash_profile": "shell",
    ".bashrc": "shell",
    ".editorconfig": "ini",
    ".profile": "shell",
    ".vimrc": "vim",
    ".zshrc": "shell",
}
"""file name → language, for names that say more than their ending"""

# Each pattern names what it finds: `word` (class, def…) with `name`, `name` alone, or `call`.
_ANY = r"""[ \t]*
    (?:(?:export|default|declare|public|private|protected|internal|fileprivate|static|final
        |abstract|sealed|async|unsafe|const|inline|virtual|override|open|data|case|partial|readonly
        |local|implicit|suspend|mutating|pub(?:\([\w: ]+\))?|extern(?:[ ]"C")?)[ \t]+)*
    (?P<word>class|def|function|fn|func|fun|interface|struct|enum|trait|module|namespace|object
        |protocol|extension|record|type|mod|union|sub|proc|macro|contract|actor|package|subroutine
        |program|input|message|service|rpc|schema)
    (?:[ \t]+|\*[ \t]*)(?:\([^()]*\)[ \t]*|<[^<>]*>[ \t]*)?  # Go's receiver, Kotlin's <T>
    (?P<name>[^\W\d][\w$?!]*(?:(?:::|\.)[\w$?!]+)*)
    (?![ \t]*<[^<>]*>\.)
    # What follows must be code: a docstring may have a line that begins with "class of…".
    (?=[ \t]*(?:[({\[<:=;,|\\]|//|\#|$|(?:extends|implements|with|where|for|is|as|do|returns)\b))"""
_C_LIKE = (
    r"[ \t]*(?:[\w:<>,\[\]*&?@.]+[ \t]+)+[*&]*(?P<call>~?\w+(?:::~?\w+)*)[ \t]*\([^;]*$",
    r"(?P<call>\w+(?:::~?\w+)+)[ \t]*\([^;]*$",
    r"[ \t]+(?P<call>[A-Z]\w*)[ \t]*\([^;]*\)[ \t]*\{[ \t]*$",
)
_SCRIPT = (
    r"[ \t]*(?:export[ \t]+)?(?:const|let|var)[ \t]+(?P<call>[\w$]+)[ \t]*(?::[^=]+)?=[ \t]*"
    r"(?:async\b[ \t]*)?(?:function\b|\([^()]*\)[^=()]*=>|[\w$]+[ \t]*=>|\($)",
    r"[ \t]+(?:(?:static|async|get|set|public|private|protected|override)[ \t]+)*\*?"
    r"(?P<call>\#?[\w$]+)[ \t]*(?:<[^<>]*>)?\([^()]*\)[ \t]*(?::[^{}=]+)?\{[ \t]*$",
)
_LISP = (r"[ \t]*\((?P<word>def[\w-]*)[ \t]+(?:\^\S+[ \t]+)*\(?(?P<name>[^\s()\[\]]+)",)
_ML = (r"[ \t]*(?P<word>let(?:[ \t]+rec)?|module|type|val)[ \t]+(?P<name>[\w']+)",)
_SECTION = (r"[ \t]*\[{1,2}(?P<name>[^\[\]]+)\]{1,2}[ \t]*(?:[\#;].*)?$",)
_MORE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("c", "c++", "c#", "java", "dart", "groovy", "objective-c"), _C_LIKE),
    **dict.fromkeys(("javascript", "typescript"), _SCRIPT),
    **dict.fromkeys(("clojure", "lisp"), _LISP),
    **dict.fromkeys(("ocaml", "fsharp"), _ML),
    **dict.fromkeys(("ini", "toml"), _SECTION),
    "cmake": (r"(?i:[ \t]*(?P<word>function|macro)[ \t]*\([ \t]*(?P<name>\w+))",),
    "css": (r"[ \t]*(?P<name>[^\s{};/*][^{};]*?)[ \t]*\{[ \t]*$",),
    "dockerfile": (r"(?i:(?P<word>from)[ \t]+(?P<name>\S+(?:[ \t]+as[ \t]+\S+)?))",),
    "elixir": (
        r"[ \t]*(?P<word>def(?:module|p|macrop?|protocol|impl|guard)?)[ \t]+(?P<name>[\w.?!]+)",
    ),
    "erlang": (r"(?P<call>[a-z]\w*)\(.*->",),
    "fortran": (r"(?i:[ \t]*(?:\w+[ \t]+)?(?P<word>subroutine|function)[ \t]+(?P<name>\w+))",),
    "go": (r"(?P<word>type)[ \t]+(?P<name>\w+)(?:\[[^\]]*\])?[ \t]+\S",),
    "haskell": (
        r"(?P<name>[\w']+)[ \t]*::",
        r"(?P<word>data|newtype|class|instance|type)[ \t]+(?P<name>[^=]+?)[ \t]*(?:=|where\b|$)",
    ),
    "hcl": (r"(?P<word>[a-z]\w*)(?P<name>(?:[ \t]+\"[^\"]*\")*)[ \t]*\{",),
    "json": (r"[ ]{0,4}\"(?P<name>[^\"]+)\"[ ]*:[ ]*[\[{][ ]*$",),
    "kotlin": (
        r"[ \t]*(?:\w+[ \t]+)*?(?P<word>fun)[ \t]+(?:<[^<>]*>[ \t]*)?"
        r"(?:[\w<>?, *]+\.)?(?P<name>\w+)\(",
    ),
    "lua": (r"[ \t]*(?:local[ \t]+)?(?P<call>[\w.:]+)[ \t]*=[ \t]*function\b",),
    "makefile": (r"(?P<name>[\w./%-][^:=\#]*?)[ \t]*::?(?!=)",),
    "powershell": (r"(?i:[ \t]*(?P<word>function|filter)[ \t]+(?P<name>[\w:-]+))",),
    "r": (r"[ \t]*(?P<call>[\w.]+)[ \t]*(?:<-|=)[ \t]*function\b",),
    "rust": (
        r"[ \t]*(?:unsafe[ \t]+)?(?P<word>impl)\b(?:<[^{]*?>)?[ \t]+(?P<name>[^{]+?)[ \t]*\{",
    ),
    "shell": (r"[ \t]*(?:function[ \t]+)?(?P<call>[\w:.-]+)[ \t]*\(\)",),
    "sql": (
        r"(?i:[ \t]*create[ \t]+(?:\w+[ \t]+){0,3}?(?P<word>table|view|function|procedure|index"
        r"|trigger|type|schema)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+)?(?P<name>[\w.\"`\[\]]+))",
    ),
    "swift": (r"[ \t]+(?:\w+[ \t]+)*(?P<call>init)[?!]?[ \t]*\(",),
    "yaml": (r"[ ]{0,6}(?P<name>[\w./-]+)[ ]*:[ ]*$",),
}
_NO_CALL = frozenset(
    (
        *("assert", "await", "case", "catch", "co_return", "constructor_call", "defer", "delete"),
        *("do", "echo", "elif", "else", "elseif", "for", "foreach", "goto", "if", "import", "lock"),
        *("new", "print", "return", "sizeof", "super", "switch", "synchronized", "throw", "try"),
        *("typedef", "unless", "until", "using", "when", "while", "with", "yield"),
    )
)
# No one writes a definition's first line so long; a minified file is one such line.
_LONGEST_LINE = 300


def read(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    text = without_licence(text)
    name = PurePosixPath(path).name
    suffix = PurePosixPath(path).suffix.lower()
    language = NAMES.get(name) or LANGUAGES.get(suffix, "")
    return Document(
        text=text,
        kind="code",
        title=name,
        metadata={"language": language},
        headings=tuple(_definitions(text, language)),
        warnings=warnings,
    )


@cache
def _patterns(language: str) -> tuple[re.Pattern[str], ...]:
    more = tuple(re.compile(pattern) for pattern in _MORE.get(language, ()))
    return (re.compile(_ANY, re.VERBOSE), *more)


def _definitions(text: str, language: str) -> Iterator[tuple[int, int, str]]:
    """Level by indentation: a definition lies in the nearest one above that is less indented."""
    patterns = _patterns(language)
    open_: list[tuple[int, str]] = []
    offset = 0
    for line in text.split("\n"):
        words = _definition(line, patterns) if line and len(line) <= _LONGEST_LINE else None
        if words:
            bare = line.lstrip()
            indent = len(line[: len(line) - len(bare)].expandtabs(4))
            while open_ and open_[-1][0] > indent:
                open_.pop()
            again = bool(open_) and open_[-1] == (indent, words)  # one more clause of the same
            if open_ and open_[-1][0] == indent:
                open_.pop()
            open_.append((indent, words))
            if not again:
                yield offset + len(line) - len(bare), len(open_), words
        offset += len(line) + 1


def _definition(line: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    for pattern in patterns:
        if found := pattern.match(line):
            named = found.groupdict()
            if call := named.get("call"):
                first = line.split(maxsplit=1)[0].split("(")[0]
                if call not in _NO_CALL and first not in _NO_CALL:
                    return f"{call}()"
            elif name := (named.get("name") or "").replace('"', "").strip():
                return f"{word} {name}" if (word := named.get("word")) else name
            elif word := named.get("word"):
                return word
    return None
