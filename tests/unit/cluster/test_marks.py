"""AdminComments: any text is read, and what is composed is read as it was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.marks import (
    AdminComment,
    MarkWord,
    compose_admin_comment,
    numbered_mark,
    parse_admin_comment,
)

OURS = [MarkWord.HELD, MarkWord.RELEASED, MarkWord.STOPPING]
PIECES = ["omfs:", "adm:", "omfs:held", "omfs:rel:7", "adm:held", "?", " ", " | ", "|", ":", "12", "\n", "\0", "é", '"']
pieces = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=12)
hostile = st.one_of(st.text(), pieces.map("".join))
marks = st.builds(numbered_mark, st.sampled_from(OURS), st.integers(0, 10**15 - 1))


@pytest.mark.parametrize(
    ("text", "mark", "sentence", "foreign"),
    [
        ("", "", "", ""),
        ("JS1:abc= ", "", "", "JS1:abc="),
        ("omfs:held:12", "omfs:held:12", "", ""),
        ("omfs:held:12 ", "omfs:held:12", "", ""),
        ("omfs:held:12?", "omfs:held:12", "", ""),
        ("omfs:held:12?omfs:rel:7 why | theirs | more", "omfs:held:12", "why", "theirs | more"),
        ("omfs:held:12 | theirs", "omfs:held:12", "", "theirs"),
        ("adm:rel | theirs", "adm:rel", "", "theirs"),
        ("omfs:gate", "omfs:gate", "", ""),
        ("x omfs:held:12", "", "", "x omfs:held:12"),
    ],
)
def test_the_parts_of_a_comment(text: str, mark: str, sentence: str, foreign: str) -> None:
    assert parse_admin_comment(text) == AdminComment(mark, sentence, foreign)


@pytest.mark.parametrize(
    ("mark", "word", "number"),
    [
        ("omfs:held:0", MarkWord.HELD, 0),
        ("omfs:rel:15", MarkWord.RELEASED, 15),
        ("omfs:stopping:3", MarkWord.STOPPING, 3),
        ("adm:held", MarkWord.ADMIN_HELD, 0),
        ("adm:rel", MarkWord.ADMIN_RELEASED, 0),
        ("adm:rel:7", None, 0),
        ("omfs:held", None, 0),
        ("omfs:held:", None, 0),
        ("omfs:held:-1", None, 0),
        ("omfs:held:" + "9" * 5000, None, 0),
        ("omfs:held:\u0661", None, 0),
        ("omfs:other:1", None, 1),
        ("", None, 0),
    ],
)
def test_what_a_mark_says(mark: str, word: MarkWord | None, number: int) -> None:
    stored = AdminComment(mark)
    assert (stored.word, stored.number) == (word, number)


@given(hostile)
def test_any_text_is_read(text: str) -> None:
    stored = parse_admin_comment(text)
    assert stored.word is None or stored.mark.startswith(("omfs:", "adm:"))
    assert stored.number >= 0
    assert not stored.mark or not set(stored.mark) & set(" ?\t\n")


@given(marks, hostile, hostile, hostile)
def test_what_is_composed_is_read_as_it_was_meant(mark: str, before: str, sentence: str, foreign: str) -> None:
    expected = parse_admin_comment(before).mark
    text = compose_admin_comment(mark, expected, sentence, foreign)
    assert text.partition(" ")[0] == f"{mark}?{expected}"
    assert parse_admin_comment(text) == AdminComment(
        mark, " ".join(sentence.replace("|", "/").split()), foreign.strip()
    )


@given(marks, st.lists(st.tuples(marks, hostile), max_size=5), hostile)
def test_foreign_text_outlives_any_number_of_marks(mark: str, later: list[tuple[str, str]], text: str) -> None:
    foreign = parse_admin_comment(text).foreign
    for each, sentence in [(mark, ""), *later]:
        stored = parse_admin_comment(text)
        text = compose_admin_comment(each, stored.mark, sentence, stored.foreign)
    assert parse_admin_comment(text).foreign == foreign
