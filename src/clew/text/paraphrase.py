"""What a short statement says, in one way of saying it: so that "resides in" is "lives in".

As in same_fact.py, what may differ is listed, and everything else keeps two statements apart: each
number, name, date, "not", "may", "some", "before" must be there, and where it was. The licences
below are for what people tell an assistant, in English: words for the same thing, the order of "X
is Ana's Y", a time put first, and ways to say where somebody lives, what they own, like and fear.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from clew.text.same_fact import essence, infinitive

__all__ = ["gist", "paraphrased"]

LONGEST = 24
"""Atoms of a statement; a longer text says more than one thing."""


def gist(text: str) -> tuple[str, ...]:
    """Statements with the same gist say the same, in other words perhaps; of other texts it is the
    essence. Texts with the same essence have the same gist."""
    atoms = essence(text)
    if not atoms or len(atoms) > LONGEST or not _STOPS.isdisjoint(atoms):
        return atoms
    words = [_ALIKE.get(atom, atom) for atom in atoms]
    if len(words[0]) > 1 and not _COMMON.fullmatch(words[0]):
        words[0] = words[0][0].upper() + words[0][1:]  # a name: it stays one where it is moved
    said = " ".join(words)
    for pattern, put in _licences():
        said = pattern.sub(put, said)
    return tuple(word.lower() if word[1:].islower() else word for word in said.split(" "))


def paraphrased(one: str, other: str) -> bool:
    """Whether these say the same in other words. What is a name in one of them, and no name in the
    other, is two things: at the beginning of a sentence nobody can tell."""
    (names, words), (others, rest) = _cases(one), _cases(other)
    return gist(one) == gist(other) and not (names & rest or words & others)


def _cases(text: str) -> tuple[set[str], set[str]]:
    """The words after the first that begin with a capital, and those that do not."""
    words = re.findall(r"[^\W\d_]+", text.strip().partition(" ")[2])
    return {w.lower() for w in words if w[0].isupper()}, {w for w in words if w[0].islower()}


_STOPS = frozenset(["", " .", " ?", " !", " :", " ;", " …"])
"""Atoms of what is more than one statement, or none, or is meant to the letter."""


# ---------------------------------------------------------------- words for the same thing


def _alike(groups: str) -> dict[str, str]:
    """Each word of a line as the first one."""
    lines = (line.split() for line in groups.strip().splitlines())
    return {word: first for first, *others in lines for word in others}


_ALIKE = _alike(
    """
    lives resides
    moved relocated
    written implemented
    has owns possesses
    likes enjoys
    bought purchased
    buys purchases
    starts begins
    started began
    finished completed
    finishes completes
    needs requires
    every each
    car automobile
    cars automobiles
    bike bicycle
    bikes bicycles
    film movie
    films movies
    phone telephone
    photo photograph
    photos photographs
    sofa couch
    flat apartment
    flats apartments
    plane airplane aeroplane
    doctor physician
    lawyer attorney
    coworker colleague
    coworkers colleagues
    boss manager
    child kid
    children kids
    father dad
    mother mom mum
    medicine medication
    profession occupation job
    afraid scared frightened
    small little
    big large
    short brief
    ill sick
    mathematics maths math
    km kilometres kilometers
    minutes min mins
    hours hrs
    1 one
    2 two
    3 three
    4 four
    5 five
    6 six
    7 seven
    8 eight
    9 nine
    10 ten
    11 eleven
    12 twelve
    """
)
_COMMON = re.compile(
    r"user(?:'s)?|the|a|an|in|on|at|every|since|there|it|this|my|his|her|their|our|i|we|he|she|they"
    r"|\d.*|.*(?:ing|[^s']s)|tomorrow|today|yesterday|tonight|dark|light|red|green|blue|black|white"
    r"|yellow|brown|gray|orange|pink|purple|golden|silver|port|last|next|use|send|run|call|always|never|don't|do|keep|meeting|server|deadline|database"
)
"""A word at the beginning that is no name: those of this list, plurals and activities."""

# ---------------------------------------------------------------- ways to say it

_WHO = r"(user|[A-Z]\w+)"
_DAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_TIME = (
    rf"(?:in|on|at|every|since|until|during) (?:the )?(?:{_DAY}s?|[A-Z]\w+|\d[\d:]*(?: [ap]m)?"
    r"|mornings?|afternoons?|evenings?|nights?|days?|weeks?|months?|years?|weekdays?|weekends?"
    r"|summers?|winters?|springs?|autumns?)(?: \d{1,4})?|(?:last|next|this) (?:week|month|year)"
    r"|tomorrow|today|yesterday|tonight"
)
_MONTH = "(Jan|Febr)uary|March|April|May|June|July|August|(Septem|Octo|Novem|Decem)ber"
_EMPTY = r"(?:what|something|the (?:thing|one))"
"""What may stand before "that Ana likes" and say nothing; any other noun says what it is."""
_PROPER = r"([A-Z]\w+)"
_DUE = (
    r"(?:project|report|essay|thesis|paper|proposal|application|assignment|homework|task|invoice"
    r"|payment|release|draft|article|presentation|submission|milestone|manuscript|survey|budget)"
)
"""What has a deadline by being due. Where somebody has one, they are not due themselves."""
_OCCUPATION = (
    r"(?:nurse|doctor|lawyer|teacher|engineer|developer|programmer|designer|architect|accountant"
    r"|scientist|researcher|analyst|consultant|boss|secretary|waiter|waitress|cook|chef|baker"
    r"|butcher|barber|hairdresser|carpenter|plumber|electrician|mechanic|technician|driver|pilot"
    r"|soldier|firefighter|pharmacist|dentist|surgeon|vet|veterinarian|psychologist|therapist"
    r"|librarian|translator|interpreter|journalist|editor|writer|author|photographer|musician"
    r"|actor|actress|painter|farmer|gardener|fisherman|cashier|clerk|receptionist|banker|broker"
    r"|economist|professor|lecturer|tutor|administrator|paramedic|midwife|optician|cleaner"
    r"|bartender|welder|tailor|jeweller|notary|bookkeeper|biologist|chemist|physicist"
    r"|mathematician|statistician|geologist|historian|policeman|policewoman)"
)
"""A job may be a nightmare, and who has it is none."""
_SECOND_VERB = (
    r"to (?!(?:the|a|my|his|her|their|our|its|work|school|bed|church|town|college|user)\b)[a-z]"
    r"|(?<!goes )(?<!quit )(?<!stopped )(?<!started )(?<!likes )"
    r"(?!meeting|morning|evening|building|wedding|training|everything|nothing|something)\w\w+ing\b"
    r"|(?:sa(?:ys?|id)|tells?|told|th(?:inks?|ought)|kn(?:ows?|ew)|believ|claim|den(?:y\b|ie[sd])"
    r"|admi|confess|promise|agree|sw(?:ears?|ore)\b|vow|announce|mention|report(?:s|ed)\b|repl(?:y\b|ie)"
    r"|answered|ask|explain|insist|argue|state[sd]\b|suggest|recommend|propose|warn|threaten|predict"
    r"|guess|assum|suppos|suspect|doubt|fe(?:els?|lt)\b|f(?:inds?|ound)\b|hears?\b|heard|s(?:ees?|aw)\b"
    r"|notice|learn(?:s|ed)\b|realize|recogn|discover|remember|forg[eo]t|recall|imagin|dream|worr"
    r"|hope|wish|wants?\b|wanted|plans?\b|planned|intend|expect|decide|refuse|offer(?:s|ed)\b|tr(?:y\b|ies|ied)"
    r"|lets?\b|makes?\b|made\b|show(?:s|ed)|pro(?:ves?|ved)\b|dispute|confirm|regret|complain|wonder"
    r"|w(?:rites?|rote) that|seem|appear|cause"
    r"|book(?:s|ed)\b|cancel|call(?:s|ed) off|schedul|reschedul|arrang|postpon|reserv"
    r"|order(?:s|ed)\b|miss|prepar|invit|mov(?:es|ed) (?:the|a)\b)"
    r"|(?:that|who|whom|whose|which|what|when|where|why|how|whether|if|because|while|before|after"
    r"|until|till|since|as|than|and|or|but|so|not|never|only|just|even|also|again|still)\b"
    r"|(?:\S+ )*\w+ed (?:\S+ )*\w+ed\b"
    r"|(?:[a-z]\S* )+(?:he|she|it|they|we|i|I|you|[A-Z]\w+) "
    r"(?!in|on|at|by|for|from|to|with|of|off|about|every|last|next|this|tomorrow|today|yesterday)[a-z]"
)
"""After a beginning with a time: a sign that it may be another time at the end. "On Monday Ana said
the server was down" tells when she said it, and who cancels a meeting on Monday may do so before;
"every day Ana does not work" is of each day."""
_RELATION = (
    r"(?:mother|father|parents?|sisters?|brothers?|siblings?|sons?|daughters?|child|children|wife"
    r"|husband|spouse|partner|aunts?|uncles?|cousins?|niece|nephew|grandmother|grandfather|friends?"
    r"|neighbou?r|boss|coworkers?|assistant|doctor|lawyer|teacher|landlord|owner|name|surname|age"
    r"|birthday|address|email|profession|employer|salary|hometown|nationality|dog|cat|pet|car|house"
    r"|flat|phone|laptop)"
)
"""What somebody has, by "of" as well. The picture of Ana, and the fear of her, may be Bob's."""
_DIET = r"(vegetarian|vegan|kosher|halal|ketogenic)"


@cache
def _licences() -> tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]:
    """Each way of saying it, and the one that stands for all; in this order."""
    return tuple((re.compile(way), put) for way, put in _WAYS)


def _does(found: re.Match[str]) -> str:
    """Ana's hobby is sailing: Ana sails."""
    *before, activity = (part for part in found.groups() if part)
    return "".join((*before, _third(infinitive(activity) or activity)))


def _third(verb: str) -> str:
    return verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else "s")


_WAYS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\ban (?=\w)", "a "),
    # when it was said in the beginning
    (rf"\b({_MONTH}) (\d\d?)(?:st|nd|rd|th)?\b(?! ?:)", r"\4 \1"),
    (rf"\b(\d\d?)(?:st|nd|rd|th) (?:of )?(?={_MONTH})", r"\1 "),
    (rf"^({_TIME})(?: ,)? (?!(?:.* )?(?:{_SECOND_VERB}))(.+)$", r"\2 \1"),
    (rf"^({_DAY})'s meeting (?!(?:.* )?(?:{_SECOND_VERB}))(.+)$", r"meeting \2 on \1"),
    (rf" (on {_DAY}) (at \d[\d:]*(?: [ap]m)?)$", r" \2 \1"),
    (r"\bdaily$", "every day"),
    (r"\bweekly$", "every week"),
    (r"\b((?:\d\S*|once|twice)(?: \w+){,2}) (?:a|per) (day|week)$", r"\1 every \2"),
    # whose it is, and what it is called
    (rf"^{_PROPER} is the name of (\w+'s \w+)$", r"\2 is \1"),
    (rf"\bthe ({_RELATION}) of {_WHO}\b(?![' ])", r"\2's \1"),
    (rf"^the ({_RELATION}) of {_WHO} ", r"\2's \1 "),
    (rf"^the name of (\w+'s \w+) is {_PROPER}$", r"\1 is \2"),
    (rf"^(\w+'s (?:\w+ )?\w+) is (?:called|named) {_PROPER}$", r"\1 is \2"),
    (rf"^{_WHO} has an? (\w+) (?:called|named) {_PROPER}$", r"\1's \2 is \3"),
    (r"^([^']+) is (\w+'s \w+(?: \w+){,2})$", r"\2 is \1"),
    (rf"^{_WHO} is (?:called|named) (\w+)$", r"\1's name is \2"),
    (rf"^{_WHO}(?: is (\d+) years old|'s age is (\d+))$", r"\1 is \2\3"),
    (r"'s birthday is (?=\d)", r"'s birthday is on "),
    (rf"^{_WHO} was born on (\d+ \w+|\w+ \d+)$", r"\1's birthday is on \2"),
    # X is what Ana prefers
    (rf"^(.+) is where {_WHO} lives$", r"\2 lives in \1"),
    (rf"^(.+) (?:is|are) {_EMPTY} (?:that )?{_WHO} (\w+s)$", r"\2 \3 \1"),
    (rf"^(.+) is (?:preferred by {_WHO}|(\w+)'s preference)$", r"\2\3 prefers \1"),
    (r"^(\w+)'s preference is (.+)$", r"\1 prefers \2"),
    (r"^(.+) is used by (\w+)$", r"\2 uses \1"),
    (r"^(.+) is used as (\w+)$", r"\2 is \1"),
    (r"\b(\w+) uses (\S+) as (?:a|the|his|her|their) (\w+)$", r"\1's \3 is \2"),
    (r"^(.+) is the language of (.+)$", r"\2 is written in \1"),
    (
        rf"^(?:the )?deadline (?:of|for) (?:the )?((?:\S+ )*{_DUE}) is (?:on )?(.+)$",
        r"\1 is due on \2",
    ),
    (
        rf"^(?:the )?((?:\S+ )*{_DUE})(?:'s)? deadline is (?:on )?(.+)$",
        r"\1 is due on \2",
    ),
    (r"^(?:the )?(.+) is due (?:on |by )?", r"\1 is due on "),
    (rf"^(.+?) gives? {_WHO} (.+)$", r"\2 gets \3 from \1"),
    (rf"^{_WHO} is (?:a|the) parent of (\d+ children|a child)$", r"\1 has \2"),
    (r"^meeting takes place ", "meeting is "),
    (rf"^{_WHO}'s hobby is (\w+ing)\b", _does),
    (r"\b(?:has a meeting with|is meeting(?: with)?|meets with)\b", "meets"),
    (r"\battends (?:a )?school\b", "goes to school"),
    # to live, to work
    (r"^(\w+)'s home is (?:in )?(?=[A-Z])", r"\1 lives in "),
    (r"\bis (?:based|living) in\b", "lives in"),
    (rf"^(\w+)'s profession is (?:a )?(?=(?:\w+ )*{_OCCUPATION}$)", r"\1 works as a "),
    (r"\bhas a profession\b", "has a job"),
    (r"\bhas a job as (a .+) at (\w+)$", r"works at \2 as \1"),
    (r"\b(?:is employed (?:at|by)|is working (?:at|for)|works for|has a job at)\b", "works at"),
    (r"\bworks as (a .+) at (\w+)$", r"works at \2 as \1"),
    (rf"\b(?:works|is employed|is working) as (?=a (?:\w+ )*?{_OCCUPATION}\b)", "is "),
    (r"\bcomes from\b", "is from"),
    (r"\btakes the (train|bus|tram|bike|car|ferry) to work$", r"goes to work by \1"),
    (r"\b(?:commutes|gets to work|travels to work) by\b", "goes to work by"),
    (r"\b(?:graduated|got a degree) from\b", "graduated from"),
    (r"\b(?:is learning|is studying|learns|studies)\b", "studies"),
    (r"\bis a (\w+) student\b", r"studies \1"),
    (r"\bdrinks (?:a )?(coffee|tea)\b|\bhas a (coffee|tea)(?= every\b|$)", r"drinks \1\2"),
    # to like and not to like
    (r"\blikes (.+) (?:better|more) than ", r"prefers \1 to "),
    (r"\b(prefers .+) over ", r"\1 to "),
    (r"\blikes (.+) (?:better|more)$", r"prefers \1"),
    (r"^(\w+)'s preferred (\w+) is (\w+)$", r"\1 prefers \3 \2"),
    (r"\b(?:likes|prefers) (dark|light) (?:mode|theme)s?$", r"prefers \1 mode"),
    (r"\bis (?:fond|a fan) of\b", "likes"),
    (r"\bcan not stand\b", "hates"),
    (r"\bdoes not like\b", "dislikes"),
    (r"\b(?:is afraid of|has a fear of|fears)\b", "fears"),
    (rf"^(\w+) (?:scares?|frightens?) {_WHO}$", r"\2 fears \1"),
    (r"\bwould like\b", "wants"),
    (r"\bwants answers  to be (\w+)$|\bwants answers to be (\w+)$", r"wants \1\2 answers"),
    # to have, to be able to
    (r"\bhas got\b", "has"),
    (r"\bhas (bought|sold|sent|paid|moved|finished|started|signed|booked|ordered)\b", r"\1"),
    (r"\bsuffers from\b", "has"),
    (rf"^(.+) (?:triggers?|causes?) {_WHO}'s allergy$", r"\2 is allergic to \1"),
    (rf"^{_WHO} gets a allergic reaction from (.+)$", r"\1 is allergic to \2"),
    (rf"^(.+) causes? a allergic reaction in {_WHO}$", r"\2 is allergic to \1"),
    (r"\b(?:is allergic|has a allergy) to (\w+?)s?\b", r"has a \1 allergy"),
    (r"\bhas a (\w+?)s? allergy\b", r"has a \1 allergy"),
    (r"\bhas (?:a )?(\w+) intolerance\b", r"is \1 intolerant"),
    (r"\b(?:has trouble sleeping|sleeps poorly)\b", "sleeps badly"),
    (rf"\b(?:is|is a|follows a) {_DIET}(?: diet)?$", r"is \1"),
    (r"\b(?:is fluent in (\w+)|speaks (\w+) fluently)$", r"speaks fluent \1\2"),
    (r"\bis a (\w+) player$", r"plays \1"),
    (r"\bcan speak\b", "speaks"),
    (r"\bgoes (\w+ing)\b", _does),
    (r"\b(?:is training|trains|is preparing)\b for\b", "prepares for"),
    (r"\b(?:runs|listens) on port\b", "uses port"),
)
