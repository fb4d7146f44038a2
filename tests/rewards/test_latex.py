"""The plain form of mathematical writing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad.rewards.latex import enclosed, plain, split

FORMS = {
    "140°": [
        r"140^\circ",
        r"140^{\circ}",
        r"140 ^ { \circ }",
        "140°",
        "140º",
        "140˚",
        r"140\degree",
        r"$140^\circ$",
        "１４０°",
        r"140^{o}",
        "140°。",
    ],
    r"\sqrt{3}": ["√{3}", r"\sqrt{3}", r"$\sqrt{3}$"],
    r"\frac{1}{2}": [r"\dfrac{1}{2}", r"\tfrac{1}{2}", "½", r"\left\frac{1}{2}\right."],
    "8 cm": [r"8\text{ cm}", r"8\mathrm{ cm}", r"8\,\text{cm}", "8~cm", r"8\ cm", r"8\quad cm"],
    "2*3": [r"2\times3", "2×3", r"2\cdot3", "2·3", "2∗3"],
    "5π": [r"5\pi", "5π", "5pi", "5𝜋"],
    "cm^{2}": ["cm²", "cm^{2}", r"\text{cm}^{2}", r"\mathrm{cm}²"],
    "1,000": ["1,000", "1{,}000", r"1\,000", "１，０００", r"1\!000"],
    "50%": [r"50\%", "50%", "５０％", "50 percent"],
    "⟦1,2⟧": [r"\{1,2\}", r"\left\{1,2\right\}", r"\lbrace1,2\rbrace"],
    "2±1": [r"2\pm1", "2±1", "2+-1"],
    "x≤3": [r"x\le3", r"x\leq3", "x≤3", "x⩽3", "x<=3"],
    "3:2": ["3:2", "3∶2", "3：2"],
    "-3": ["-3", "−3", "－3", "–3"],
    "①②": ["①②"],
    "13": [r"\text{13}", r"\mathrm{13}", r"\boxed{13}"],
    r"\sin 30°": ["sin30°", r"\sin30^\circ", r"\sin 30°"],
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_one_form_for_all_writings(form: str) -> None:
    assert {plain(text).replace(" ", "") for text in FORMS[form]} == {form.replace(" ", "")}


def test_different_things_stay_different() -> None:
    texts = [
        "140°",
        "140",
        "14°",
        "√{3}",
        "3",
        "3²",
        "32",
        "①②",
        "12",
        "½",
        "1/2",
        "-3",
        "3-",
        "a",
        "A",
        "α",
        "5m",
        "5 m²",
        "5%",
        "(1,2)",
        "[1,2]",
        "{1,2}",
        r"\{1,2\}",
    ]
    assert len({plain(text) for text in texts}) == len(texts)


@given(st.text(alphabet="\\{}[]()$^_ 0123456789.,aπ√°±frctexboqs%!|<>=-+*/'\"，。①½²", max_size=60))
def test_any_text_has_a_plain_form_that_is_its_own(text: str) -> None:
    assert len(plain(text)) <= 20 * len(text) + 1


def test_split_sees_brackets() -> None:
    assert split("(1,2),3", ",") == ["(1,2)", "3"]
    assert split("1;2,3", ",;") == ["1", "2", "3"]
    assert split(")1,2", ",") == [")1,2"]
    assert enclosed("((1)(2))") and not enclosed("(1)(2)") and not enclosed("(1") and not enclosed("")
