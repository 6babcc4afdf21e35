"""English words that say nothing of what a text is about: here and, by way of the stage's script, in the browser."""

_WORDS = """
a an and any are as at be been but by can could did do does for from had has have he her his how i if in into is it its
me my no not of off on one or our out she so some than that the their them then there these they this those to up us was
we were what when where which who will with would you your
"""
FUNCTION_WORDS = frozenset(_WORDS.split())
