"""A plain loop around Ollama with a memory of its own, whose steps MemRL Inspector shows like those of any agent.

Run `python docs/recorder_example.py my-bank` with a server at OLLAMA_HOST that has both models; then start
`memrl app --bank my-bank`.
"""

import sys
from pathlib import Path

import numpy as np
import ollama

from memrl_core import Bank, Recorder

CHAT, EMBED, RUN, K = "llama3.2", "nomic-embed-text", "ollama-loop", 2
TASKS = [("Which planet is the largest?", "jupiter"), ("Which planet is the hottest?", "venus")] * 2


def main(folder: str, client: ollama.Client) -> None:
    """Answer each task with what was learned before, and record every step in the bank at `folder`."""
    dimension = len(client.embed(EMBED, "how many numbers?").embeddings[0])
    bank = Bank.open(folder) if Path(folder).exists() else Bank.create(folder, EMBED, dimension)
    with bank:
        recorder = Recorder(bank, RUN, model=CHAT)
        for question, expected in TASKS:
            vector = unit(client.embed(EMBED, question).embeddings[0])
            with recorder.step(question, embedding=vector) as s:
                hits = nearest(bank, vector)
                s.recalled(hits, k1=K, delta=-1.0)
                s.selected([memory_id for memory_id, _ in hits])
                known = "\n\n".join(bank.memory(memory_id).experience for memory_id, _ in hits)
                messages = [{"role": "user", "content": f"What you learned before:\n{known}\n\nTask: {question}"}]
                s.prompted(messages)
                reply = client.chat(CHAT, messages)
                answer = reply.message.content or ""
                s.answered(answer, prompt_tokens=reply.prompt_eval_count, answer_tokens=reply.eval_count)
                right = expected in answer.lower()
                s.rewarded(1.0 if right else -1.0, f"the answer {'names' if right else 'does not name'} {expected}")
                s.wrote(f"{question}\n{answer}\nThis was {'right' if right else 'wrong'}.")
            print(f"step {s.trace.step}: {answer}")


def nearest(bank: Bank, vector: np.ndarray) -> list[tuple[str, float]]:
    """The K memories with the largest cosine: the agent's own retrieval."""
    found = [(memory.id, float(bank.embedding(memory.id) @ vector)) for memory in bank.memories(RUN)]
    return sorted(found, key=lambda hit: -hit[1])[:K]


def unit(numbers: list[float]) -> np.ndarray:
    """An embedding as a vector of length 1."""
    return np.asarray(numbers) / np.linalg.norm(numbers)


if __name__ == "__main__":
    main(sys.argv[1], ollama.Client())
