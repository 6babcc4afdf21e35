"""Tasks: each environment with its tasks, its prompt and its judge; and a person's own task files."""

from pages.shared import entry
from pages.shared import place as places
from pages.shared.task_files import files
from pages.shared.task_picker import card, chosen_set, one_task, set_table, start
from pages.shared.tasks_place import chosen_environment, in_link

entry.by_app("pages/tasks.py")

place = places.current(keep=in_link())
name = chosen_environment()
card(name)
tasks = chosen_set(name)
if tasks is not None:
    start(place, name)
    task = set_table(tasks)
    one_task(name, task)
files()
