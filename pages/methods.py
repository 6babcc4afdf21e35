"""Methods: what each method of the literature does, what each makes of the same step, and what each has learned."""

from pages.shared import entry
from pages.shared import place as places
from pages.shared.header import header
from pages.shared.methods_cards import cards, table
from pages.shared.methods_learned import learned
from pages.shared.methods_place import CARDS, LEARNED, POOL, TABLE, chosen_view, in_link
from pages.shared.methods_pool import pool

entry.by_app("pages/methods.py")

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
