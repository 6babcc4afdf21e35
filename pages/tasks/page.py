"""Tasks: each environment with its tasks, its prompt and its judge; and a person's own task files."""

import streamlit as st

from pages.shared import place as places
from pages.tasks.files import files
from pages.tasks.picker import card, chosen_environment, chosen_set, in_link, one_task, set_table

place = places.current(keep=in_link())
name = chosen_environment()
card(name)
tasks = chosen_set(place, name)
if tasks is not None:
    table, shown = st.columns([2, 3], gap="medium")
    with table:
        task = set_table(tasks)
    with shown:
        one_task(name, task)
files()
