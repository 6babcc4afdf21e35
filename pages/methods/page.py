"""Methods: what each method of the literature does, what each makes of the same step, and what each has learned."""

from pages.methods.cards import cards, table
from pages.methods.learned import learned
from pages.methods.place import CARDS, LEARNED, POOL, TABLE, chosen_view, in_link
from pages.methods.pool import pool
from pages.shared import place as places
from pages.shared.header import header

place = places.current(keep=in_link())
if place is not None:
    header(place)
view = chosen_view()
if view == CARDS:
    cards()
elif view == TABLE:
    table()
elif view == POOL:
    pool(place)
elif view == LEARNED:
    learned(place)
