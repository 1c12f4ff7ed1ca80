"""English words too common to tell one text from another. Only queries drop them."""

_WORDS = """
    a about an and are as at be been but by can could did do does for from had has have how i if in
    into is it its me my no not of on or our should so some such than that the their them then there
    these they this those to was we were what when where which who whom whose why will with would
    you your
"""
STOPWORDS = frozenset(_WORDS.split())
