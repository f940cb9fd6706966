from __future__ import annotations

import json
from pathlib import Path

import pytest

from mutcache.errors import MutcacheError
from mutcache.requirements import Req
from mutcache_tools.requirement_story import Place, requirement_story, story

FILES = {
    "spec/02-alias.rst": "Aliases\n=======\n\nSee MC-ALIAS-007.\n\n.. req:: MC-ALIAS-007\n   :level: MUST\n",
    "reference/mutcache/requirements.py": '"""Generated from spec; do not edit."""\nX = "MC-ALIAS-007"\n',
    "reference/mutcache/rules/alias.py": (
        "from mutcache.requirements import Req\n\n\n"
        "@rule(Req.MC_ALIAS_007)\ndef cycles(model):\n    return Req.MC_ALIAS_007\n\n\n"
        "class Walk:\n    def step(self):\n        '''MC-ALIAS-007'''\n"
    ),
    "reference/mutcache/rules/other.py": "MC_ALIAS_0071 = MALIAS_007 = 'MC-ALIAS-070'\n",
    "reference/mutcache/broken.py": "def mc_alias_007(:\n",
    "reference/mutcache/data.bin": "MC-ALIAS-007",
    "conformance/mutcache_conformance/cases/alias.py": "\ndef cases():\n    yield 'alias-007/two'\n",
    "cupy_kernels/mutcache_cupy/copy.cu": "\n\n// MC-ALIAS-007\n",
    "tools/tests/test_x.py": "def test_mc_alias_007_is_refused():\n    pass\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path


def test_every_place_of_a_checkout_is_found_once(checkout: Path) -> None:
    assert requirement_story(Req.MC_ALIAS_007, checkout).places == {
        "specification": (Place("spec/02-alias.rst", 6, ""),),
        "reference": (
            Place("reference/mutcache/broken.py", 1, ""),
            Place("reference/mutcache/rules/alias.py", 4, "cycles"),
            Place("reference/mutcache/rules/alias.py", 11, "Walk.step"),
        ),
        "conformance": (Place("conformance/mutcache_conformance/cases/alias.py", 3, "cases"),),
        "kernels": (Place("cupy_kernels/mutcache_cupy/copy.cu", 3, ""),),
        "tests": (Place("tools/tests/test_x.py", 1, "test_mc_alias_007_is_refused"),),
    }


def test_an_empty_checkout_still_tells_the_text(tmp_path: Path) -> None:
    told = requirement_story(Req.MC_DENSE_003, tmp_path)
    assert told.places == {}
    assert "capacity" in told.render().plain


def test_installed_packages_tell_the_text_and_their_own_places() -> None:
    told = requirement_story(Req.MC_DENSE_003, None)
    assert told.places.keys() <= {"reference", "conformance", "kernels"}
    assert told.places["reference"]
    assert all(place.path.startswith("mutcache/") for place in told.places["reference"])


@pytest.mark.parametrize("spelling", ["MC-ALIAS-007", "mc_alias_007", "alias-7", " MC_ALIAS_007 ", "Alias7"])
def test_every_spelling_is_understood(spelling: str) -> None:
    assert story(spelling).requirement is Req.MC_ALIAS_007


@pytest.mark.parametrize(
    ("identifier", "hint"),
    [
        ("MC-ALIAS-907", "MC-ALIAS-007"),
        ("mc_dens_003", "MC-DENSE-003"),
        ("banana", "the areas are PROTO, ALIAS, ACCESS"),
        ("", "the areas are PROTO, ALIAS, ACCESS"),
        ("ALIAS-²", "did you mean MC-ALIAS-"),
    ],
)
def test_an_unknown_requirement_is_refused_with_what_may_be_meant(identifier: str, hint: str) -> None:
    with pytest.raises(MutcacheError) as caught:
        story(identifier)
    assert caught.value.message == f"there is no requirement {identifier!r}"
    assert hint in caught.value.hint


def test_the_json_form_is_complete(checkout: Path) -> None:
    told = requirement_story(Req.MC_ALIAS_007, checkout)
    document = json.loads(json.dumps(told.to_json()))
    assert document["requirement"] == "MC-ALIAS-007"
    assert document["level"] == "MUST"
    assert document["phases"] == ["check"]
    assert document["sentence"] == Req.MC_ALIAS_007.entry.sentence
    assert document["places"]["kernels"] == [{"path": "cupy_kernels/mutcache_cupy/copy.cu", "line": 3, "symbol": ""}]


def test_the_text_form_keeps_brackets_and_drops_markup(checkout: Path) -> None:
    text = requirement_story(Req.MC_SHAPE_006, checkout).render().plain
    assert "[-rank, rank - 1]" in text
    assert "``" not in text
    lines = requirement_story(Req.MC_ALIAS_007, checkout).render().plain.splitlines()
    assert "specification  spec/02-alias.rst:6" in lines
    assert "reference      reference/mutcache/broken.py:1" in lines
    assert "               reference/mutcache/rules/alias.py:4  cycles" in lines
