"""The committed mustpass lists are those of the cases as they are."""

from __future__ import annotations

from mutcache.requirements import Profile
from mutcache_conformance.cases import generate
from mutcache_conformance.mustpass import is_required, profiles, required_cases
from mutcache_tools.generate import mustpass, stale_files


def test_the_committed_lists_are_current() -> None:
    assert stale_files(mustpass.generate()) == []


def test_no_list_is_left_of_a_profile_without_cases() -> None:
    assert set(profiles()) == {case.profile for case in generate() if is_required(case)}


def test_ids_do_not_depend_on_the_nonce() -> None:
    required = {entry.case for profile in profiles() for entry in required_cases(profile)}
    assert required <= {case.id for case in generate(12345)}
    assert Profile.DENSE in profiles()
