"""Published networks by their names; where mace-torch keeps them is in its source (0.3.16)."""

from pathlib import Path

import pytest

from pipeline_mace.conversion.published import PUBLISHED, find_published


def test_published_networks_are_found_where_mace_torch_keeps_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"fetch https://.*mace-mpa-0-medium\.model yourself"):
        find_published("mpa-0-medium")
    with pytest.raises(ValueError, match="published:mpa: unknown; give the path"):
        find_published("mpa")
    path = tmp_path / "mace/macempa0mediummodel"
    path.parent.mkdir()
    path.touch()
    assert find_published("mpa-0-medium") == path
    assert find_published("here/mine.model") == Path("here/mine.model")


def test_published_files_have_names_and_addresses_of_their_own():
    names = [one.name for one in PUBLISHED]
    addresses = [one.address for one in PUBLISHED]
    assert len(set(names)) == len(set(addresses)) == len(names)
    assert all(a.startswith("https://") and a.endswith(".model") for a in addresses)
