"""Texts that were once right, damaged: what is left when a line breaks, or when somebody writes what he likes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

from hypothesis import strategies as st

TOKENS = (
    "", " ", "\0", "\n", "\r\n", "\u202e", "\udcff", "\x1b[2J", "=", ",", ":", "|", "<|>", "(", ")", "((((", "[", "]",
    "{}", "[]", "-", "-1", "0", "%", "*", "\\", '"', "9" * 40, "1e999", "nan", "inf", "null", "true", "N/A", "(null)",
    "UNLIMITED", "4294967295", "n[1-4000000000]", "[0-99999999]", "omfs:held:1", "omfs:run=", "gres/gpu:", "mem=",
)  # fmt: skip


HOSTILE_TOML = {
    "brackets": "a = " + "[" * 100_000,
    "closed brackets": "a = " + "[" * 100 + "]" * 100,
    "dotted keys": "a." * 1500 + "a = 1",
    "a dotted table": "[" + "a." * 1500 + "a]",
    "options of a method": "[methods.dmtcp.options]\n" + "a." * 1500 + "a = 1",
    "inline tables": "a = " + "{a = " * 3000,
    "an exponent": "[policy]\nquantum_seconds = 1e99999999999999999999",
    "digits": "[policy]\nrank_depth = " + "9" * 5000,
    "hexadecimal digits": "[metrics]\nport = 0x" + "f" * 5000,
}
"""TOML, or nearly, that ends programs which take Python's reader at its word."""


def damaged(text: str) -> st.SearchStrategy[str]:
    """The text after one to three cuts, repetitions, exchanges, and insertions at any places."""
    place = st.integers(0, len(text))
    inserted = st.sampled_from(TOKENS) | st.text(max_size=20)
    hurt = st.tuples(place, st.integers(0, 40), inserted, st.integers(0, 3))
    return st.lists(hurt, min_size=1, max_size=3).map(lambda hurts: _after(text, hurts))


def try_at_random(read: Callable[[str], object], texts: Sequence[str], count: int) -> None:
    """Read so many damaged texts, the same in every run: a hundred times as many in the same time as by Hypothesis. A
    fault has the text that caused it as a note."""
    for seed in range(count):
        random = Random(seed)
        text = damaged_at_random(random.choice(texts), random)
        try:
            read(text)
        except Exception as error:
            error.add_note(f"while reading, by seed {seed}, {text!r}")
            raise


def damaged_at_random(text: str, random: Random) -> str:
    """Likewise as ``damaged``."""
    hurts = [
        (random.randint(0, len(text)), random.randint(0, 40), _inserted(random), random.randint(0, 3))
        for _ in range(random.randint(1, 3))
    ]
    return _after(text, hurts)


def _inserted(random: Random) -> str:
    if random.random() < 0.7:
        return random.choice(TOKENS)
    begin, end = random.choice(((0, 0x80), (0, 0x3000), (0xDC80, 0xDD00), (0xE000, 0x110000)))
    return "".join(chr(random.randrange(begin, end)) for _ in range(random.randint(0, 20)))


def _after(text: str, hurts: list[tuple[int, int, str, int]]) -> str:
    for begin, length, inserted, times in hurts:
        text = text[:begin] + inserted + text[begin : begin + length] * times + text[begin + length :]
    return text


def slower_by(read: Callable[[str], object], small: str, large: str, tries: int = 5) -> float:
    """How many times the processor time for ``small`` the one for ``large`` is; of several tries the least of each."""
    return _least(read, large, tries) / max(_least(read, small, tries), 1e-6)


def _least(read: Callable[[str], object], text: str, tries: int) -> float:
    found = []
    for _ in range(tries):
        begin = time.process_time()
        read(text)
        found.append(time.process_time() - begin)
    return min(found)
