"""Whether two memories say the same, so that keeping one of them loses nothing.

What may make two texts differ in meaning has no end: "Anna" and "Hanna", "5 mg" and "5 g", "eats
nuts" and "ate nuts", a "not" in any language, who owes whom. What may differ without changing the
meaning can be listed. So each text is brought to its essence by the licences below, and two texts
say the same when nothing is left that differs, in the same order:

- white space, width and accents as encoded, the style of quotes, a full stop at the end,
- a capital at the very start, a bullet, "Please remember that …", ", please",
- short forms: doesn't and does not; British and American spelling of some words,
- "the" before the user and the like, and after verbs such as prefer; "that" after says,
- likes to run and likes running; 5mg and 5 mg; the last comma of a list.

Everything else keeps them apart: tense and number too, for who lived somewhere may have moved, and
sons are more than one. Being the equality of something, sameness is transitive.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

from clew.text import analyser


def same_fact(one: str, other: str) -> bool:
    """Whether these say the same. When in doubt: no."""
    return one == other or essence(one) == essence(other)


def essence(text: str) -> tuple[str, ...]:
    """What is said, without what may differ: texts say the same when they have the same essence.

    For comparing only: it is no sentence any more, and its form may change between versions.
    """
    text = text.strip()
    if _TO_THE_LETTER.search(text.casefold()) or _LAID_OUT.search(text):
        return ("", text)  # no atom is empty: this is like no other essence
    text = _without_filler(_BULLET.sub("", _written_alike(text)))
    atoms = _without_end(_atoms(text))
    atoms = [part for atom in atoms for part in _spelt_out(atom)]
    if atoms and _BEGINNING.fullmatch(atoms[0]) and atoms[1:2] != [" :"]:
        atoms[0] = atoms[0].lower()
    return tuple(_licensed(atoms))


# ---------------------------------------------------------------- characters

_QUOTES = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'", "‛": "'", "。": "."}
    | {"\xad": None, "\u200b": None, "\u2060": None, "\ufeff": None}  # what nobody sees
)
_UNUSUAL_WIDTH = re.compile("[\uff01-\uffe2\uffe4-\uffee]")
_GUILLEMETS = re.compile(r"«([^«»]*)»|»([^«»]*)«")
_SINGLE_QUOTES = re.compile(r"(?<!\w)'(?=\S)([^'\"\n]*)(?<=\S)'(?!\w)")
_LIKE_CODE = re.compile(r"[$\\={}<>|;]|\w\(")
_ELLIPSIS = re.compile(r"(?<!\.)\.\.\.(?!\.)")


def _written_alike(text: str) -> str:
    """One encoding for what looks the same. No NFKC: it makes 10² into 102."""
    if not text.isascii():
        text = _UNUSUAL_WIDTH.sub(_usual_width, text)
        text = unicodedata.normalize("NFC", text).translate(_QUOTES)
        text = _GUILLEMETS.sub(lambda found: f'"{(found[1] or found[2] or "").strip()}"', text)
    if not _LIKE_CODE.search(text):  # where the two kinds of quotes are not the same
        text = _SINGLE_QUOTES.sub(r'"\1"', text)
    return _ELLIPSIS.sub("…", text)


def _usual_width(found: re.Match[str]) -> str:
    """Ａ as A and ｱ as ア."""
    kind, _, code = unicodedata.decomposition(found[0]).partition(" ")
    return chr(int(code, 16)) if kind in ("<wide>", "<narrow>") else found[0]


# ---------------------------------------------------------------- texts that allow for nothing

_TO_THE_LETTER = re.compile(
    r"pass ?(?:word|phrase|code|wort)|credential|secret|token|"
    r"\b(?:pin|keys?|codes?|patterns?|globs?|regexp?)\b|"
    r"mot de passe|contraseña|parola|senha|парол|密码|密碼|口令|パスワード|暗証|비밀번호"
)
"""A full stop or a capital may be part of what is to be remembered."""
_LAID_OUT = re.compile(r"```|~~~|\n(?: {2,}|\t)")
"""Code and tables: there a blank says something."""


# ---------------------------------------------------------------- what is said around a fact

_BULLET = re.compile(r"\A[-*•‣◦·]\s+(?=[^\W\d_])(?!\S+:(?:\s|\Z))")  # "- port: 80" is YAML
_REQUEST = (
    r"(?:always|never|don't|do\s+not|use|call|send|keep|avoid|answer|reply|respond|write|speak"
    r"|be|make\s+sure|ask|format|remind|add|include|give|tell)\s"
)
_FILLER = re.compile(
    rf"""\A(?:
        (?:please,?\s+|kindly\s+)?
        (?: (?:remember|note|be\s+aware|(?:keep|bear)\s+in\s+mind|do(?:n't|\s+not)\s+forget)
            (?: \s+that\s+ | \s*:\s+ | ,\s+ )
          | (?:fyi|btw|by\s+the\s+way|for\s+the\s+record|for\s+your\s+information
               |just\s+so\s+you\s+know|fact) \s*[:,]\s+
        )
      | (?:please,?|kindly)\s+(?={_REQUEST})
      | (?:por\s+favor,?\s+)?(?:recuerda|ten\s+en\s+cuenta)\s+que\s+
      | (?:rappelle-toi|souviens-toi|note|notez)\s+que\s+
      | (?:пожалуйста,?\s+)?(?:запомни|помни|запомните|помните),\s+что\s+
      | 请记住\s*[:,]\s*
    )(?P<rest>\S.*)\Z""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_THANKS = re.compile(rf"(?is)\A({_REQUEST}.*),\s*(?:please|thanks|thank\s+you)\s*[.!]?\Z")
FEWEST = 3
"""Words that must be left: "Note: C sharp" is about a note."""


def _without_filler(text: str) -> str:
    for _ in range(3):  # "BTW, please note that …"
        if not (found := _FILLER.match(text)):
            break
        rest = found["rest"]
        if len(rest.split(maxsplit=FEWEST)) < FEWEST and not any(map(analyser.unspaced, rest)):
            break
        text = rest
    return _THANKS.sub(r"\1", text)


# ---------------------------------------------------------------- atoms

_PIECE = re.compile(r"\"[^\"]*\"|`[^`]*`|[^\s\"`]+|[\"`]")
_STOPS = ",;:.!?…"
_MEASURE = re.compile(
    r"([~≈<>≤≥+\-−]?\d[\d.,]*)"
    r"(%|°C|°F|[kmµμ]?g|[kcmµμn]?m|[mcd]?l|ml|km/h|ms|s|h|min|[kKMGT]B|[kMG]Hz|kWh?|V|W|am|pm|€|£|¥)"
)


def _atoms(text: str) -> list[str]:
    """Words, and whatever else stands between blanks; a quotation is one, to the letter. Stops
    after a word are atoms that begin with a blank, which no other does."""
    if not text.isascii():
        text = _between_scripts().sub(" ", text)
    atoms: list[str] = []
    for found in _PIECE.finditer(text):
        piece, before = found[0], text[found.start() - 1 : found.start()]
        if piece.isalpha() or piece[0] in '"`':
            atoms.append(piece)
        elif before in ('"', "`") and not piece.strip(_STOPS):
            atoms += [" " + stop for stop in piece]
        else:
            atoms += _peeled(piece)
    return atoms


def _peeled(piece: str) -> list[str]:
    """`mode.` as a word and a stop. `git add .` and `..` have none."""
    end = len(piece)
    while end > 1 and piece[end - 1] in _STOPS:
        if piece[end - 1] == "." and not (piece[end - 2].isalnum() or piece[end - 2] in ")]%'"):
            break
        end -= 1
    stops = [" " + stop for stop in piece[end:]]
    piece = piece[:end]
    measure = _MEASURE.fullmatch(piece)
    return [*(measure.groups() if measure else (piece,)), *stops]


@cache
def _between_scripts() -> re.Pattern[str]:
    """Where 用户喜欢Python and 3月4日 may have a blank or not."""
    return re.compile(
        r"(?<=[\u3040-\u30ff\u3400-\u9fff])(?=[A-Za-z0-9])"
        r"|(?<=[A-Za-z0-9])(?=[\u3040-\u30ff\u3400-\u9fff])"
    )


def _without_end(atoms: list[str]) -> list[str]:
    """Take off the stop at the end. What is no word may end in an exclamation mark of its own."""
    if len(atoms) > 1 and atoms[-1] == " .":
        return atoms[:-1]
    end = len(atoms)
    while end and atoms[end - 1] == " !":
        end -= 1
    return atoms[:end] if end and atoms[end - 1].isalpha() else atoms


# ---------------------------------------------------------------- words


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEGINNING = re.compile(r"[AI]|[^\W\d_](?!\w*[A-Z])[^\W\d_]+(?:'[a-z]+)?")
_NOT = re.compile(
    r"(ca|wo|do|does|did|is|are|was|were|would|could|should|has|have|had|must|need)n't",
    re.IGNORECASE,
)
_SHORT = re.compile(r"(I|you|we|they|he|she|it)'(m|re|ve|ll)", re.IGNORECASE)
_LONG = {"m": "am", "re": "are", "ve": "have", "ll": "will"}
_CANNOT = ("cannot", "Cannot")
_IRREGULAR = {"ca": "can", "Ca": "Can", "wo": "will", "Wo": "Will"}
_SPELLING = dict(
    pair.split("/")
    for pair in _words(
        "favourite/favorite favourites/favorites colour/color colours/colors coloured/colored "
        "grey/gray flavour/flavor neighbour/neighbor behaviour/behavior organise/organize "
        "organises/organizes organised/organized realise/realize realised/realized "
        "recognise/recognize prioritise/prioritize prioritises/prioritizes optimise/optimize "
        "summarise/summarize summarises/summarizes analyse/analyze centre/center theatre/theater "
        "travelling/traveling travelled/traveled cancelled/canceled labelled/labeled "
        "modelling/modeling catalogue/catalog e-mail/email e-mails/emails aluminium/aluminum "
        "yoghurt/yogurt moustache/mustache pyjamas/pajamas"
    )
)
_ROLES = _words(
    "user user's assistant assistant's agent agent's customer customer's client client's team "
    "team's server app application system meeting deadline database deployment website"
)
"""Nouns that nobody is called by: "Turkey is warm" and "The turkey is warm" are two things."""
_TAKING = _words("prefer prefers use uses enable enables disable disables play plays")
"""Verbs after which "the" says little."""
_UNTOLD = _words(
    "first second third last next best worst most least more same other only one two three few "
    "whole old young rich poor sick dead homeless time house place way bathroom game part lead fool"
)
"""Words that mean something else with "the" than without."""
_SAYING = _words("says said think thinks thought know knows knew believe believes mentioned")
_SAYERS = _words("I he she they we you")
_LIKING = _words("like likes love loves prefer prefers enjoy enjoys")


def _spelt_out(atom: str) -> tuple[str, ...]:
    if "'" not in atom or not atom[1:].islower():
        return (atom[:3], "not") if atom in _CANNOT else (_SPELLING.get(atom, atom),)
    if found := _NOT.fullmatch(atom):
        return (_IRREGULAR.get(found[1], found[1]), "not")
    if found := _SHORT.fullmatch(atom):
        return (found[1], _LONG[found[2].lower()])
    return (atom,)


def _licensed(atoms: list[str]) -> list[str]:
    """Take out the words and commas that say nothing where they stand."""
    kept: list[str] = []
    at = 0
    while at < len(atoms):
        atom, after = atoms[at], atoms[at + 1 : at + 3]
        before = kept[-1] if kept else ""
        at += 1
        if atom == "the" and after and (after[0] in _ROLES or _bare(before, after[0])):
            continue
        if atom == "that" and before in _SAYING and after and after[0] in _SAYERS:
            continue
        if atom == " ," and _ends_list(kept, after):
            continue
        if before in _LIKING and (doing := _activity(kept, atom, after)):
            kept.append(doing)
            at += atom == "to"
            continue
        kept.append(atom)
    return kept


def _bare(before: str, noun: str) -> bool:
    """Whether "prefers the dark mode" is "prefers dark mode". "The dogs" are some, not all."""
    plural = noun.endswith("s") and not noun.endswith("ss")
    return (
        before in _TAKING
        and noun.isalpha()
        and noun.islower()
        and not (plural or noun in _UNTOLD or noun.endswith(("sh", "ch", "ese", "est")))
    )


def _ends_list(kept: list[str], after: list[str]) -> bool:
    """Whether this is the last comma of "tea, milk, and rice". With names it may be another
    count: "her parents, Ann, and Bob" are four people or two."""
    if len(after) < 2 or len(kept) < 2 or after[0] not in ("and", "or") or kept[-2] != " ,":
        return False
    return all(word.isalpha() and word.islower() for word in (kept[-1], after[1]))


def _activity(kept: list[str], atom: str, after: list[str]) -> str:
    """One form for "to run" and "running" after likes. "Would like to" is a wish, not a habit."""
    if any(word == "would" or word.endswith("'d") for word in kept[-4:]):
        return ""
    verb = after[0] if atom == "to" and after else atom if atom.endswith("ing") else ""
    if not (verb.isascii() and verb.isalpha() and verb.islower()):
        return ""
    doing = verb if atom == "to" else infinitive(verb)
    return f" to {doing}" if doing else ""


# ---------------------------------------------------------------- the verb of an activity

# A stem would not do: those of author and authorize are one, as are those of hop and hope. So only
# the ending is undone, by the rules of English spelling. Where a rule is wrong two ways of saying
# something are not known to be one.
_DOING = re.compile(r"([a-z]{2,})ing")
_DOUBLED = re.compile(r".*[aeiou]([bdgmnprt])\1")
_IE = {"dy": "die", "ly": "lie", "ty": "tie"}
_AS_IS = frozenset(["add", "focus", "visit", "edit", "exit", "put", "bus"])
_DROPPED_E = re.compile(
    r"[^aeiou]*(?:qu)?[aeiouy][^aeiouwxy]"  # hik, bak, us: a short one would have been doubled
    r"|.*(?:[cuvz]|[bcdfgkptz]l)"  # danc, argu, driv, organiz, juggl
    r"|.*[aeiouy].*(?:[^aeo]at|[^o]ut|[^aeiou](?:ar|ir|in|id|ad|od|ud|ok|om)|ur)"  # imagin
    r"|.*(?:[aeiou]s|[nrw]s|[dr]g|[^aeiou]ag|chang|arrang|challeng)"  # brows, nurs, judg, manag
    r"|creat|complet|delet|compet|invit|rewrit|promot|quot|explor|ignor|restor|escap|breath|bath"
    r"|recit|renam"
)


def infinitive(doing: str) -> str:
    """The infinitive of a word in -ing, in lower case; "" where it is no activity: nobody does a
    spring."""
    if not (found := _DOING.fullmatch(doing)):
        return ""
    stem = found[1]
    if not re.search("[aeiouy]", stem):
        return ""
    if stem in _IE:
        return _IE[stem]
    if stem in _AS_IS:
        return stem
    if _DOUBLED.fullmatch(stem):
        return stem[:-1]
    return stem + "e" if _DROPPED_E.fullmatch(stem) else stem


# ---------------------------------------------------------------- paraphrases

# "Resides in" is "lives in". What may be said in other words is listed too, in paraphrases.toml,
# and everything else keeps two statements apart: each number, name, date, "not", "may", "some",
# "before" must be there, and where it was.

MOST_ATOMS = 24
"""Of a statement; a longer text says more than one thing."""
_SEVERAL = frozenset(["", " .", " ?", " !", " :", " ;", " …"])
"""Atoms of what is more than one statement, or none, or is meant to the letter."""


def gist(text: str) -> tuple[str, ...]:
    """Statements with the same gist say the same, in other words perhaps; of other texts it is the
    essence. Texts with the same essence have the same gist."""
    atoms = essence(text)
    if not atoms or len(atoms) > MOST_ATOMS or not _SEVERAL.isdisjoint(atoms):
        return atoms
    alike, common, ways = _paraphrases()
    words = [alike.get(atom, atom) for atom in atoms]
    if len(words[0]) > 1 and not common.fullmatch(words[0]):
        words[0] = words[0][0].upper() + words[0][1:]  # a name: it stays one where it is moved
    statement = " ".join(words)
    for pattern, put in ways:
        statement = pattern.sub(_does if put == "DOES" else put, statement)
    return tuple(word.lower() if word[1:].islower() else word for word in statement.split(" "))


def is_paraphrase(one: str, other: str) -> bool:
    """Whether these say the same in other words. What is a name in one of them, and no name in the
    other, is two things: at the beginning of a sentence nobody can tell."""
    (names, words), (others, rest) = _cases(one), _cases(other)
    return gist(one) == gist(other) and not (names & rest or words & others)


def _cases(text: str) -> tuple[set[str], set[str]]:
    """The words after the first that begin with a capital, and those that do not."""
    words = re.findall(r"[^\W\d_]+", text.strip().partition(" ")[2])
    return {w.lower() for w in words if w[0].isupper()}, {w for w in words if w[0].islower()}


@cache
def _paraphrases() -> tuple[dict[str, str], re.Pattern[str], list[tuple[re.Pattern[str], str]]]:
    """Word → the one that stands for it; what is no name; patterns with what replaces each."""
    import tomllib

    table = tomllib.loads(Path(__file__).with_name("paraphrases.toml").read_text("utf-8"))
    alike = {word: first for first, *others in map(str.split, table["alike"]) for word in others}
    parts = {name: "".join(pieces) for name, pieces in table["parts"].items()}

    def whole(pattern: str) -> str:
        return re.sub(r"<([A-Z_]+)>", lambda name: whole(parts[name[1]]), pattern)

    ways = [(re.compile(whole(pattern)), put) for pattern, put in table["ways"]["ordered"]]
    return alike, re.compile("".join(table["common"])), ways


def _does(found: re.Match[str]) -> str:
    """Ana goes sailing: Ana sails."""
    verb = infinitive(found[1]) or found[1]
    return verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else "s")
