"""The embedder that compares meaning: unit vectors, the same everywhere, and what it finds that letters do not."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.run_parts import embedder_name, make_embedder
from memrl_core.bank import MemoryBank
from memrl_core.cli import main as cli
from memrl_core.embedders import wordllama
from memrl_core.embedders.base import Embedder
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.embedders.wordllama import WordLlamaEmbedder
from memrl_core.errors import InputError, ModelMissing

PARAPHRASES = (
    ("My parcel has not arrived yet", "the delivery is late"),
    ("I was charged twice for one order", "money was taken from the card two times"),
    ("The lamp stopped shining after a week", "light bulb broke within days"),
    ("How do I sign in when I forgot my password?", "lost login credentials"),
    ("Please send the invoice once more", "need another copy of my bill"),
    ("The shoes are too small", "footwear pinches, wrong size"),
    ("I want to cancel my subscription", "end the monthly membership"),
    ("The screen stays black", "display shows nothing"),
    ("Where is the nearest shop?", "looking for a store close by"),
    ("The soup was cold", "our meal came to the table chilly"),
    ("Change the date of my flight", "move the plane trip to another day"),
    ("The washing machine makes loud noises", "laundry appliance is rattling"),
    ("My dog needs medicine", "drugs for a sick pet"),
    ("The train was an hour behind schedule", "railway delay"),
    ("There is a hair in my salad", "found something disgusting in the food"),
    ("The battery is empty by noon", "phone needs charging after few hours"),
    ("Add a second driver to the car insurance", "another person shall steer my vehicle"),
    ("Nobody answers the telephone", "calls to the hotline are not picked up"),
    ("The room had no heating", "it was freezing in the hotel"),
    ("I would like my money back", "refund please"),
)
"""A text, and the same said in other words."""

DISTRACTORS = (
    "The garden gate needs paint", "A poem about the autumn", "My sister plays the violin", "Boil the rice first",
    "The museum opens on Sunday", "Two plus two is four", "The cat sleeps on the roof", "We planted three apple trees",
    "The king lost his crown", "Snow covers the mountains", "A bicycle has two wheels", "The teacher wrote a letter",
    "The moon is far away", "Fold the paper along the line", "He swims across the lake", "The band tours in spring",
    "Cotton grows in warm countries", "The bridge was built in stone", "They voted for a new mayor",
    "Bees make honey from flowers",
)  # fmt: skip


def found_first(embedder: Embedder) -> int:
    """How many of the texts find their own paraphrase first, among all paraphrases and distractors."""
    asked, reported = zip(*PARAPHRASES, strict=True)
    similarities = embedder.embed(asked) @ embedder.embed([*reported, *DISTRACTORS]).T
    return int((similarities.argmax(axis=1) == np.arange(len(asked))).sum())


def test_it_finds_what_is_said_in_other_words_where_letters_do_not() -> None:
    assert found_first(WordLlamaEmbedder()) >= 12
    assert found_first(HashingEmbedder()) <= 6


def test_rows_are_the_unit_vectors_that_the_package_itself_gives() -> None:
    package = import_module("wordllama")
    texts = ["put a hot egg on the table", "clean the mug", "日本語 の 文"]
    model = package.WordLlama.load(disable_download=True, cache_dir=Path(package.__file__).parent)
    vectors = WordLlamaEmbedder().embed(texts)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, model.embed(texts, norm=True), atol=1e-6)


def test_a_batch_gives_the_same_vectors_as_one_by_one() -> None:
    texts = ["heat an egg", "cool an apple " * 300, "heat an apple"]
    alone = np.concatenate([WordLlamaEmbedder().embed([text]) for text in texts])
    assert WordLlamaEmbedder().embed(texts).tobytes() == alone.tobytes()


@pytest.mark.parametrize("text", ["😀", "the of and", "?!", "\x00", "\u200b", "x" * 100_000, "😀" * 100_000])
def test_odd_texts_have_a_unit_vector(text: str) -> None:
    (vector,) = WordLlamaEmbedder().embed([text])
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("text", ["", "   \n", "a\ud800b"])
def test_empty_and_broken_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        WordLlamaEmbedder().embed(["fine", text])


def test_weights_that_cannot_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordllama, "_folder", lambda: tmp_path)
    with pytest.raises(ModelMissing, match="hashing"):
        WordLlamaEmbedder().embed(["fine"])


def test_nothing_of_it_is_loaded_before_a_text_is_embedded() -> None:
    program = (
        "import sys; from memrl_core.embedders.wordllama import WordLlamaEmbedder; WordLlamaEmbedder();"
        "assert not {'wordllama', 'tokenizers', 'safetensors', 'huggingface_hub'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["wordllama", "wordllama-256"])
def test_it_is_chosen_by_its_names(name: str) -> None:
    made = make_embedder(name, Preferences())
    assert (made.name, made.dimension) == ("wordllama-256", 256)
    assert embedder_name(name) == "wordllama-256"


def test_new_banks_begin_with_it_and_with_hashing_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    made = []
    for installed in (True, False):
        monkeypatch.setattr("memrl_core.agent.run_parts.is_installed", lambda installed=installed: installed)
        bank = str(tmp_path / str(installed))
        done = CliRunner().invoke(cli.app, ["run", "--tasks", "2", "--bank", bank])
        assert done.exit_code == 0, done.output
        with MemoryBank.open(bank) as kept:
            made.append(kept.embedder.name)
    assert made == ["wordllama-256", "hashing-1024"]
