"""The position at which a long text is cut."""

import pytest

from remit.domain.text.truncation import beginning, cut_place, written_out

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1e9\U0001f1ea"
WAVE = "\U0001f44b\U0001f3fd"
HEART = "\u2764\ufe0f"
LETTER = "e\u0301\u0323"
SYLLABLE = "\u1112\u1161\u11ab"
PAIR = "\ud83d\ude42"
LINE = "\r\n"


@pytest.mark.parametrize("whole", [FAMILY, FLAG, WAVE, HEART, LETTER, SYLLABLE, PAIR, LINE])
def test_no_cut_falls_inside_a_character_as_people_see_it(whole: str) -> None:
    text = f"ab{whole}{whole}{whole}c"
    ends = {0, 1, 2, *(2 + len(whole) * number for number in (1, 2, 3))}
    assert {cut_place(text, most) for most in range(len(text))} <= ends


def test_a_cut_falls_at_a_line_end_in_the_second_half() -> None:
    assert beginning("first\nsecond\nthird", 15) == "first\nsecond\n"
    assert beginning("a\n" + "b" * 50, 20) == "a\n" + "b" * 18


def test_a_short_text_stays_whole_and_endless_marks_do_not_stop_a_cut() -> None:
    assert beginning("short", 5) == "short"
    assert len(beginning("e" + "\u0301" * 500, 100)) == 100


def test_a_call_is_written_as_it_is_made() -> None:
    call = written_out("Read", file_path='a "b".py', offset=2001)
    assert call == 'Read(file_path="a \\"b\\".py", offset=2001)'
    assert written_out("note", **{"tool": "x", "-i": True}) == 'note(tool="x", -i=true)'
