"""The embedded embedder: unit vectors, the same everywhere, similar for similar words."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError

PRINTS_A_DIGEST = (
    "import hashlib; from memrl_core.embedders.hashing import HashingEmbedder;"
    "print(hashlib.sha256(HashingEmbedder().embed(['put a hot egg on the table']).tobytes()).hexdigest())"
)


def test_rows_are_unit_vectors_of_the_named_dimension() -> None:
    embedder = HashingEmbedder()
    vectors = embedder.embed(["put a hot egg on the table", "clean the mug", "日本語 の 文"])
    assert vectors.shape == (3, embedder.dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    assert str(embedder.dimension) in embedder.name


@pytest.mark.slow
def test_another_process_gives_the_same_bits() -> None:
    there = subprocess.run([sys.executable, "-c", PRINTS_A_DIGEST], capture_output=True, text=True, check=True)
    here = hashlib.sha256(HashingEmbedder().embed(["put a hot egg on the table"]).tobytes()).hexdigest()
    assert there.stdout.strip() == here


def test_a_batch_gives_the_same_vectors_as_one_by_one() -> None:
    texts = ["heat an egg", "cool an apple", "heat an apple"]
    together = HashingEmbedder().embed(texts)
    alone = np.concatenate([HashingEmbedder().embed([text]) for text in texts])
    assert together.tobytes() == alone.tobytes()


def test_texts_that_share_words_are_more_similar() -> None:
    hot_egg, hot_potato, clean_mug = HashingEmbedder().embed(
        ["put a hot egg on the table", "put a hot potato on the table", "rinse the mug and store it in the cabinet"]
    )
    assert hot_egg @ hot_potato > hot_egg @ clean_mug + 0.2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [*((text, "no embedding") for text in ("", "   \n", "\x00\x07", "!!! ?")), ("a\ud800b", "position 2")],
)
def test_a_text_without_words_or_with_half_a_character_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        HashingEmbedder().embed(["fine", text])


def test_control_characters_change_nothing_but_word_borders() -> None:
    plain, odd = HashingEmbedder().embed(["heat the egg", "heat\x00the\x1begg"])
    assert plain.tobytes() == odd.tobytes()
