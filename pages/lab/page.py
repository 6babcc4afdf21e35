"""Lab: two runs live side by side, theory beside what they did, their q landscape over time, and a study of many."""

from pages.lab import place as lab_place
from pages.lab.landscape import landscape_over_time
from pages.lab.new_pair import new_pair, pair_line
from pages.lab.study import when_utility_helps
from pages.lab.theory import theory_beside_practice
from pages.lab.twins import controls, while_they_play

place = lab_place.current()
view = lab_place.choose_view(place)
if view == lab_place.THEORY:
    theory_beside_practice(place)
elif view == lab_place.STUDY:
    when_utility_helps()
elif place.twins is None:
    new_pair(place)
elif view == lab_place.LANDSCAPE:
    pair_line(place, place.twins)
    landscape_over_time(place, place.twins)
else:
    pair_line(place, place.twins)
    # Looked at once: a play that ends while the page is drawn would leave its parts at odds.
    playing = place.twins.playing
    controls(place.twins, playing)
    while_they_play(place, place.twins, playing)
