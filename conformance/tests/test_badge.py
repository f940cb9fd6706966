"""Badges of profiles."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mutcache.requirements import Profile
from mutcache_conformance import badge
from mutcache_conformance.mustpass import Verdict


def verdict(profile: Profile = Profile.DENSE, *, is_conformant: bool | None = True) -> Verdict:
    return Verdict(profile, is_conformant, 10, 9, {}, {}, rests_on_reported=False)


@pytest.mark.parametrize(
    ("is_conformant", "words", "color"),
    [
        (True, "conformant", "#1a7f37"),
        (False, "not conformant 9/10", "#c02a2a"),
        (None, "no verdict", "#5d6b82"),
    ],
)
@pytest.mark.parametrize("profile", list(Profile))
def test_a_badge(profile: Profile, is_conformant: bool | None, words: str, color: str) -> None:
    svg = ET.fromstring(badge.render(verdict(profile, is_conformant=is_conformant)))
    space = "{http://www.w3.org/2000/svg}"
    label, word = svg.iter(f"{space}text")
    assert (label.text, word.text) == (f"mutcache {profile}", words)
    assert svg.get("aria-label") == f"mutcache {profile}: {words}"
    _, left, right = svg.iter(f"{space}rect")
    assert right.get("fill") == color
    # Text stays within its half.
    middle, end = float(left.get("width", 0)), float(svg.get("width", 0))
    assert float(label.get("x", 0)) + float(label.get("textLength", 0)) < middle
    assert middle < float(word.get("x", 0))
    assert float(word.get("x", 0)) + float(word.get("textLength", 0)) < end


def test_a_folder_has_the_badges_of_its_verdicts(tmp_path: Path) -> None:
    badge.write([verdict(), verdict(Profile.FLOW)], tmp_path)
    first = (tmp_path / "badges/dense.svg").read_bytes()
    badge.write([verdict()], tmp_path)
    assert [path.name for path in (tmp_path / "badges").iterdir()] == ["dense.svg"]
    assert (tmp_path / "badges/dense.svg").read_bytes() == first
