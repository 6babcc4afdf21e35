"""Forms that make things: a run, a bank, another setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import streamlit as st
from pydantic.fields import FieldInfo

from memrl_core.agent.preferences import Preferences, banks_folder, keep_options, load_preferences, remember_bank
from memrl_core.agent.run_parts import create_bank, embedder_of, embeds_here, is_simulated, make_embedder, must_be_there
from memrl_core.agent.runs import begins_with, start_run
from memrl_core.analysis.decision.gate import MOST_INTENTS, GateSuggestion, suggest_delta, suggested
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.bank.storage.folders import delete_bank, valid_name
from memrl_core.environments import OWN_WORDS, environment_class, environment_names, environment_title, why_unusable
from memrl_core.environments.tasks import set_names, tasks_of_set
from memrl_core.errors import MemRLError
from memrl_core.models.base import CHOSEN, ModelOptions
from memrl_core.numerals import fixed, percent
from memrl_core.policies import policy_class, settings_of, usable_policies
from memrl_core.records import Task
from memrl_core.settings import PolicySettings
from pages.shared import place as places
from pages.shared.models import chat_model_choice, embedder_choice
from pages.shared.person import person, within_role
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal
from pages.shared.view import arm_line

TYPED = "type my own"
UNCHOSEN = "as usual"
KEPT = "new_run_keep_options"
ENVIRONMENT, CHOSEN_ENVIRONMENT = "new_environment", "new_environment_chosen"
HELPDESK = "helpdesk"
OFTEN_CHANGED = ("weight", "k1", "k2", "delta", "epsilon", "alpha", "normaliser", "exclude_same_task")


def start_run_form(place: Place | None, environment: str | None = None, tasks: str | None = None) -> None:
    """Choose environment, tasks, model and settings; starts the run and goes to it.

    Where `environment` and `tasks` are given, they are chosen already.
    """
    top = st.container()
    model = chat_model_choice("new_run")
    if environment is None or tasks is None:
        with top:
            environment, tasks = _environment_and_tasks(model)
    new_bank = st.text_input(
        "Bank", value="my-bank", key="new_run_bank", help="An existing bank of this machine, or the name of a new one."
    )
    known = places.known_banks()
    start, base, embedder = st.container(), None, ""
    with st.expander("Method, settings, seed"):
        policy = policy_choice("new_policy")
        preset = _preset_choice(policy)
        key = f"new_run_{policy}_{preset}" if preset else f"new_run_{policy}"
        left, right = st.columns(2)
        with left:
            values = settings_fields(settings_of(policy, {}, preset), key, often_changed(policy))
            embedder = "" if new_bank in known else embedder_choice("new_run")
            if "delta" in often_changed(policy):
                _propose_delta(values["delta"], embedder, known.get(new_bank), tasks)
        with right:
            options = _environment_options(environment, model)
            seed = st.number_input("Seed", 0, 2**31 - 1, 1, key="new_seed")
            if place is not None and place.run and new_bank == place.bank_name:
                begins = ["empty", f"what {place.run.id} knows now"]
                chosen = st.radio("Memory at the start", begins, key="new_base", format_func=literal)
                base = None if chosen == "empty" else place.run.id
        model_options = _model_options(environment, model)
    with start:
        look = within_role(places.bank_named(new_bank), Role.MANAGE, disabled=tasks is None)
        started = st.button("Start", type="primary", key="start_run", width="stretch", **look)
    if not started:
        return
    preferences, made = load_preferences(), ""
    try:
        settings = settings_of(policy, values)
        facts = must_be_there(model, preferences)
        new_bank = new_bank if new_bank in known else valid_name(new_bank)
        bank = _existing_or_new(new_bank, embedder, preferences)
        made = "" if new_bank in known else new_bank
        embedder_of(bank, preferences)
        info = start_run(
            bank,
            environment=environment,
            tasks="" if tasks in (None, TYPED) else tasks,
            settings=settings,
            seed=int(seed),
            model=model,
            base=base,
            policy=policy,
            environment_options=options,
            model_options=model_options,
            model_facts=facts,
            by=person(),
        )
        if st.session_state.get(KEPT):
            keep_options(model, model_options)
    except MemRLError as error:
        if made:
            _take_back(made)
        with start:  # Below all the fields it would be out of sight.
            st.error(literal(str(error)))
        return
    places.go_to_steps(bank=new_bank, run=info.id)


def _propose_delta(delta: float, embedder: str, uri: str | None, tasks: str | None) -> None:
    """A δ for what the bank at `uri` holds, or for the tasks in a new one; nothing where that takes a server."""
    try:
        bank = places.opened(uri) if uri else None
        embedder = bank.embedder.name if bank else embedder
        if bank is not None and (runs := bank.runs()):
            found, of = gate_of_bank(bank, bank.uri, bank.state, runs[-1].id), "that this bank holds"
        elif tasks not in (None, TYPED) and embeds_here(embedder):
            found, of = _gate_of_tasks(embedder, tasks), "of these tasks"
        else:
            return
    except MemRLError:
        return
    st.caption(
        f"δ {fixed(found.delta, 2)} is proposed: a fifth of the pairs of different intents {of} are more alike, as "
        f"{literal(embedder)} compares them. δ {fixed(delta, 2)} lets {percent(found.passing(delta), 0)} of them pass."
    )


@st.cache_data(max_entries=16, show_spinner="Getting the tasks …")
def tasks_in(name: str) -> list[Task]:
    """The tasks of a set; some engines take seconds to tell theirs."""
    return tasks_of_set(name)


@st.cache_data(max_entries=8, show_spinner="Comparing the intents …")
def gate_of_bank(_bank: MemoryBank, uri: str, state: str, run: str) -> GateSuggestion:
    """The δ that fits what a run knows now."""
    return suggest_delta(_bank.view(run))


@st.cache_data(max_entries=8, show_spinner=False)
def _gate_of_tasks(embedder: str, tasks: str) -> GateSuggestion:
    intents = dict.fromkeys(task.intent for task in tasks_of_set(tasks))
    return suggested(make_embedder(embedder, load_preferences()).embed([*intents][:MOST_INTENTS]))


def _take_back(name: str) -> None:
    """Delete the bank that was made for a run which could not be started."""
    path = banks_folder() / name
    if not places.opened(str(path)).runs():
        places.opened.clear(str(path))
        delete_bank(path)


def _environment_and_tasks(model: str) -> tuple[str, str | None]:
    names = [name for name in environment_names() if not why_unusable(name)]
    left, right = st.columns(2)
    chosen = st.session_state.get(CHOSEN_ENVIRONMENT)
    for_small_models = chosen is None and not is_simulated(model) and HELPDESK in names
    # A widget keeps what it began with: until somebody chooses, it is said anew what that is.
    st.session_state[ENVIRONMENT] = chosen if chosen in names else HELPDESK if for_small_models else names[0]
    environment = left.selectbox(
        "Environment", names, key=ENVIRONMENT, format_func=environment_title, on_change=_keep_environment
    )
    sets = [*set_names(environment), *([TYPED] if environment == "conversation" else [])]
    tasks = right.selectbox("Tasks", sets, key=f"new_tasks_{environment}", placeholder="Load a file on the page Tasks")
    if for_small_models:
        st.caption(
            "The help desk is chosen because small models can do it: one turn, a closed list of answers, and every "
            "message is new."
        )
    others = len(environment_names()) - len(names)
    note = f"{others} more cannot be used on this machine yet; the page Tasks says why." if others else None
    st.page_link(
        "pages/tasks/page.py", label="Look at the tasks, or load your own", icon=":material/checklist:", help=note
    )
    return environment, tasks


def _keep_environment() -> None:
    st.session_state[CHOSEN_ENVIRONMENT] = st.session_state[ENVIRONMENT]


def _environment_options(environment: str, model: str) -> dict[str, Any]:
    """What the environment is made with, where that differs from how it is by itself."""
    found = environment_class(environment)
    simulated, begun = is_simulated(model), begins_with(environment, model)
    chosen = {}
    for name, field in found.Options.model_fields.items():
        if simulated and name == OWN_WORDS:
            continue  # It has none.
        drawn = name == found.seed_option  # By the run's seed, so that the default is one more value to choose.
        usual = None if drawn else begun.get(name, field.default)
        value = _field_input(name, field, usual, f"new_{environment}_{name}_{usual}")
        if value is not None if drawn else value != field.default or name in begun:
            chosen[name] = value
    return chosen


def _model_options(environment: str, model: str) -> dict[str, Any]:
    """The options of the model that differ from what they are where nobody chooses."""
    if is_simulated(model):
        return {}
    usual = ModelOptions(num_predict=environment_class(environment).spec.answer_tokens).model_dump()
    begins = {**usual, **load_preferences().model_options.get(model, {})}
    st.markdown("**Model options**")
    columns, chosen = st.columns(2), {}
    for at, name in enumerate(CHOSEN):
        with columns[2 * at // len(CHOSEN)]:
            # A widget keeps what it began with: where that is another value, it is another widget.
            key = f"new_{environment}_model_{name}" + (f"_{begins[name]}" if begins[name] != usual[name] else "")
            chosen[name] = _field_input(name, ModelOptions.model_fields[name], begins[name], key)
    st.checkbox(
        "Begin new runs of this model so", key=KEPT, help="On this machine, from now on, for options that differ."
    )
    return {name: value for name, value in chosen.items() if value != usual[name]}


def _existing_or_new(name: str, embedder: str, preferences: Preferences) -> MemoryBank:
    known = places.known_banks()
    if name not in known:
        path = banks_folder() / name
        create_bank(str(path), embedder, preferences).close()
        known[name] = str(path)
    return places.opened(known[name])


def open_bank_form() -> None:
    """Open a bank that lies outside the home folder; it is remembered under a name."""
    known = places.known_banks()
    if known:
        name = st.selectbox("On this machine", sorted(known), key="open_known")
        if st.button("Open", key="open_known_go", width="stretch"):
            places.go_to_steps(bank=name)
    uri = st.text_input(
        "Folder, or TOML file of a bank elsewhere", key="open_uri", placeholder="./runs/bank  ·  team.toml"
    )
    if st.button("Open this address", key="open_uri_go", width="stretch", disabled=not uri.strip()):
        with errors_shown():
            uri = uri.strip()
            if "://" not in uri:
                uri = str(Path(uri).expanduser().resolve())
            MemoryBank.open(uri).close()
            places.go_to_steps(bank=remember_bank(uri))


def policy_choice(key: str, label: str = "Method") -> str:
    """Which policy; what it is and where it differs from its source stands below."""
    policy = st.selectbox(label, usable_policies(), key=key, format_func=lambda name: policy_class(name).spec.title)
    arm_line(policy_class(policy).spec)
    return policy


def _preset_choice(policy: str) -> str:
    """The settings that the fields begin with: those of a preset, or "" for the defaults."""
    presets = policy_class(policy).presets
    if not presets:
        return ""
    chosen = st.selectbox(
        "Begin with", ["", *presets], key=f"new_preset_{policy}",
        format_func=lambda name: f"the official configuration {name}" if name else "the defaults",
        help="All settings of the configuration, also those that are not shown here.",
    )  # fmt: skip
    return str(chosen)


def often_changed(policy: str) -> tuple[str, ...]:
    """The settings to show first: the usual ones, and those that only this policy has."""
    shared = PolicySettings.model_fields
    if policy == "memrl":
        return OFTEN_CHANGED
    used = settings_in_use(policy)
    usual = [name for name in OFTEN_CHANGED if name in used]
    return (*usual, *(name for name in used if name not in shared and name not in usual))


def settings_in_use(policy: str) -> tuple[str, ...]:
    """The settings that a policy goes by."""
    found = policy_class(policy)
    return tuple(name for name in found.Settings.model_fields if name not in found.ignored)


def settings_fields(current: PolicySettings, key: str, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """One input a setting in the order of `names`, from the same descriptions that validate it; returns all values."""
    values, fields = current.model_dump(), type(current).model_fields
    for name in fields if names is None else names:
        values[name] = _field_input(name, fields[name], values[name], f"{key}_{name}")
    return values


def settings_in_two_columns(current: PolicySettings, key: str, names: Sequence[str]) -> dict[str, Any]:
    """`settings_fields` in rows of two."""
    values = current.model_dump()
    for number, column in enumerate(st.columns(2)):
        mine = tuple(names[number::2])
        with column:
            fields = settings_fields(current, key, mine)
        values |= {name: fields[name] for name in mine}
    return values


def _field_input(name: str, field: FieldInfo, value: Any, key: str) -> Any:
    asked: dict[str, Any] = {"label": field.title or name, "key": key, "help": field.description}
    several = get_origin(field.annotation) in (Union, UnionType)
    kinds = get_args(field.annotation) if several else (field.annotation,)
    if choices := [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]:
        options = [None, *choices] if NoneType in kinds else choices
        words = lambda one: UNCHOSEN if one is None else one  # noqa: E731
        return st.selectbox(options=options, index=options.index(value), format_func=words, **asked)
    if isinstance(value, bool):
        return st.toggle(value=value, **asked)
    if isinstance(value, str) or (value is None and str in kinds):
        text = st.text_input(value=value or "", placeholder=UNCHOSEN, **asked)
        return text or (None if value is None or NoneType in kinds else "")
    step, number = (1, value) if int in kinds else (0.05, None if value is None else float(value))
    written = "%.3f" if float in kinds and value is not None else None
    # An emptied field gives None, for which the settings would take their default without a word.
    emptied = UNCHOSEN if number is None else f"{number} when empty"
    found = st.number_input(value=number, step=step, format=written, placeholder=emptied, **asked)
    return number if found is None else found
