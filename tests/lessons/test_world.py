"""The playground's world: what its presets, its plane and its sentences state."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import islice

import pytest

from benchmarks import plane
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import InputError
from memrl_core.lessons.measures import trained
from memrl_core.lessons.own_tasks import groups_of
from memrl_core.lessons.world import Play, Settings, embeddings, exponential, family_of, is_shifted


def test_a_run_is_its_settings_and_a_shift_turns_every_second_family() -> None:
    settings = Settings(seed=7, shifts=(20,))
    steps = list(islice(Play(settings), 60))
    assert steps == list(islice(Play(settings), 60)) != list(islice(Play(replace(settings, seed=8)), 60))
    play = Play(settings)
    world = [list(ranks) for ranks in play.world]
    list(islice(play, 20))
    assert [family for family in range(8) if play.world[family] != world[family]] == [0, 2, 4, 6]
    assert all(sorted(ranks) == [0, 1, 2, 3] for ranks in play.world)


def test_embeddings_are_unit_vectors_nearer_within_a_family_than_to_the_next() -> None:
    vectors = embeddings().astype(float)
    assert all(math.isclose(float(one @ one), 1.0, abs_tol=1e-5) for one in vectors)
    cosines = (vectors @ vectors.T).reshape(8, 3, 8, 3).mean(axis=(1, 3))
    assert all(row[family] == max(row) and row[family] > row[(family + 1) % 8] for family, row in enumerate(cosines))
    assert exponential(-3.5) == pytest.approx(math.exp(-3.5), rel=1e-14)


def test_after_the_shift_only_what_changed_comes_on_the_plane() -> None:
    steps = list(islice(Play(Settings(shifts=(49,), rest=True)), 72))
    assert {is_shifted(family_of(one.task)) for one in steps[48:]} == {True}
    assert len({one.task for one in steps[24:48]}) == 24


def test_the_plane_that_is_shipped_is_the_one_that_is_computed() -> None:
    kept = json.loads((sample_data_path() / "plane.json").read_text(encoding="utf-8"))
    assert (kept["seeds"], len(kept["dots"])) == (plane.SEEDS, len(plane.ALPHAS) * len(plane.WEIGHTS))
    ghost = kept["ghosts"][0]
    every = range(1, plane.SEEDS + 1)
    again = plane.averaged([trained("value", ghost["rate"], seed) for seed in every])
    assert again == {name: ghost[name] for name in again}
    # The trained model has forgotten a good part of what it could; a memory that learns as much has kept more.
    assert ghost["before"][0] - ghost["kept"][0] > 0.15
    same = [one for one in kept["dots"] if one["gained"][0] > ghost["gained"][0] - ghost["gained"][1]]
    assert max(one["kept"][0] for one in same) > ghost["kept"][0] + 0.15


def test_pasted_lines_become_groups_by_blank_lines_and_headings_and_markup_stays_text() -> None:
    pasted = "\n\n# Cooking\nbake  a cake\nboil rice\n\nfry\nroast\n#Cars\n\n<b>wash</b>\nfix\n\n\nsell\nbuy\n"
    assert groups_of(pasted) == (
        ("Cooking", ("bake a cake", "boil rice")),
        ("Group 2", ("fry", "roast")),
        ("Cars", ("<b>wash</b>", "fix")),
        ("Group 4", ("sell", "buy")),
    )


@pytest.mark.parametrize(
    ("pasted", "said"),
    [
        ("", "0 texts"),
        ("one", "1 text;"),
        ("\n".join("abcdefgh"), "1 group;"),
        ("\n\n".join("abcdefghi"), "9 groups"),
        ("\n".join(f"text {n}" + "\n" * (n % 6 == 0) for n in range(41)), "41 texts"),
        ("x" * 10_000, "10,000 characters"),
        ("\n".join("abcdefg") + "\n\n" + "x" * 121, "121 characters"),
        ("\n".join("abcdefg") + "\n\na", "“a” stands there twice"),
    ],
)
def test_pasted_tasks_that_cannot_be_used_get_a_sentence(pasted: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        groups_of(pasted)
