"""Questions for a class about the playground's world, each with what came of it over many seeds.

Some of the answers are not those that one would hope for. `memrl claims check` computes the numbers that stand in
`because`.
"""

from __future__ import annotations

from memrl_core.lessons.room import Question

_SHIFT = {"shifts": (145,)}

QUESTIONS = {
    "Does utility help when the world shifts?": Question(
        "Two agents do the same tasks. One chooses memories by similarity alone (λ = 0), the other also by their "
        "utility q (λ = 0.5). After 144 of 240 tasks half of what worked stops working. Who solves more?",
        ("The one that goes by similarity alone", "The one that also goes by q", "Sixty seeds show no difference"),
        answer=2,
        because="Over 60 seeds the difference is −0.2 points, ±1.2: they show none. "
        "In 30 of the 60 the one that also goes by q solves more.",
        effect="what choosing by q as well (λ = 0.5) adds to similarity alone (λ = 0)",
        left={"weight": 0.0, **_SHIFT},
        right={"weight": 0.5, **_SHIFT},
    ),
    "Utility alone, or similarity as well?": Question(
        "One agent weighs similarity and utility q alike (λ = 0.5). The other goes by q alone (λ = 1). Who solves "
        "more?",
        ("The one that weighs both", "The one that goes by q alone", "Sixty seeds show no difference"),
        answer=0,
        because="Over 60 seeds q alone costs 5.8 points, ±1.1. In 4 of the 60 it solves more.",
        effect="what q alone (λ = 1) adds to both (λ = 0.5)",
        left={"weight": 0.5, **_SHIFT},
        right={"weight": 1.0, **_SHIFT},
    ),
    "Stiff or nervous?": Question(
        "Two agents do the same tasks, and after 144 of 240 half of what worked stops working. One moves its q slowly "
        "(α = 0.05), the other quickly (α = 0.7). Who solves more?",
        ("The slow one", "The quick one", "Sixty seeds show no difference"),
        answer=1,
        because="Over 60 seeds the quick one solves 2.4 points more, ±1.1. In 13 of the 60 the slow one does.",
        effect="what a quick q (α = 0.7) adds to a slow one (α = 0.05)",
        left={"alpha": 0.05, **_SHIFT},
        right={"alpha": 0.7, **_SHIFT},
    ),
    "One memory or three?": Question(
        "One agent gives the model the best memory, the other the best three. Who solves more?",
        ("The one with one memory", "The one with three", "Sixty seeds show no difference"),
        answer=1,
        because="Over 60 seeds three memories solve 5.1 points more than one, ±1.2. "
        "In 10 of the 60 one memory solves more.",
        effect="what three memories add to one",
        left={"k2": 1, **_SHIFT},
        right={"k2": 3, **_SHIFT},
    ),
}
"""Title to question."""
