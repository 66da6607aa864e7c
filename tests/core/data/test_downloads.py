"""Raw files that are fetched. Oracle: the files of a folder, by file:// URLs, and `sha256sum`."""

import shutil
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import yaml

from pipeline_core.data.downloads import fetch


@pytest.fixture
def shelf(workshop, alloys, tmp_path):
    """A folder that plays the server, with two files, and what a dataset file says of them."""
    folder = tmp_path / "server"
    folder.mkdir()
    declared = {}
    for name, frames in (("train.xyz", alloys[:40]), ("test.xyz", alloys[40:])):
        shutil.move(workshop.write(name, frames), folder / name)
        hashed = subprocess.run(
            ["sha256sum", folder / name], capture_output=True, text=True, check=True
        )
        url = f"file://{folder / name}"
        declared[f"set/{name}"] = {"url": url, "sha256": hashed.stdout.split()[0]}
    return folder, declared


def make_dataset(workshop, declared, pattern="set/*.xyz"):
    return workshop.dataset(sources=[{"path": pattern}], downloads=declared)


def test_missing_files_are_fetched_and_imported(workshop, shelf):
    folder, declared = shelf
    run = make_dataset(workshop, declared)
    paths = [workshop.datasets / "set" / name for name in ("test.xyz", "train.xyz")]
    assert sorted(run.find_raw_files().values()) == paths
    message = r"set/test.xyz, set/train.xyz are not .*download --dataset alloys"
    with pytest.raises(ValueError, match=message):
        workshop.registry.select_hook("data", None)(run=run)
    lines = []
    assert fetch(run, [], lines.append) == 2
    assert [line.split(": ")[1].split(",")[0] for line in lines] == ["fetched", "fetched"]
    for path in paths:
        assert path.read_bytes() == (folder / path.name).read_bytes()
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["test.xyz", "train.xyz"]
    assert workshop.registry.select_hook("data", None)(run=run)["samples"] == 60
    before = run.select_params()  # where a file comes from is no reason to import again
    declared["set/train.xyz"]["url"] = "https://example.org/train.xyz"
    assert make_dataset(workshop, declared).select_params() == before


def test_one_file_can_be_asked_for(workshop, shelf):
    _, declared = shelf
    run = make_dataset(workshop, declared)
    assert fetch(run, ["set/test.xyz"]) == 1
    with pytest.raises(ValueError, match=r"set/train.xyz is not there yet"):
        workshop.registry.select_hook("data", None)(run=run)
    with pytest.raises(ValueError, match=r"alloys.yaml: 'set/valid.xyz' is not under `downloads`"):
        fetch(run, ["set/valid.xyz"])


def test_a_file_that_is_there_is_left_alone_but_checked(workshop, shelf):
    folder, declared = shelf
    run = make_dataset(workshop, declared)
    fetch(run, [])
    path = workshop.datasets / "set" / "train.xyz"
    before = path.stat().st_mtime_ns
    shutil.rmtree(folder)
    assert fetch(run, []) == 0
    assert path.stat().st_mtime_ns == before
    path.write_text("my own")
    with pytest.raises(ValueError, match=r"train.xyz: is not the file of file://.*remove it"):
        fetch(run, [])
    assert path.read_text() == "my own"


def test_a_wrong_file_or_none_is_not_kept(workshop, shelf):
    folder, declared = shelf
    right = declared["set/train.xyz"]["sha256"]
    (folder / "train.xyz").write_text("<html>404</html>")
    run = make_dataset(workshop, declared)
    with pytest.raises(ValueError, match=rf"train.xyz: file://.*sha256 [0-9a-f]{{64}}.* {right}"):
        fetch(run, ["set/train.xyz"])
    (folder / "train.xyz").unlink()
    with pytest.raises(ValueError, match=r"file://.*train.xyz: cannot be fetched .*by hand"):
        fetch(run, ["set/train.xyz"])
    assert list((workshop.datasets / "set").iterdir()) == []


def test_the_downloads_of_a_mixture_are_those_of_its_parts(workshop, shelf):
    _, declared = shelf
    make_dataset(workshop, declared)
    (workshop.datasets / "both.yaml").write_text(
        yaml.safe_dump({"description": "d", "parts": [{"dataset": "alloys"}]})
    )
    run = workshop.project.load_dataset("both")
    assert len([*run.find_raw_files().values()]) == 2
    assert fetch(run, []) == 2


def list_files(run):
    """Return the raw files of a run; None where no file matches."""
    try:
        return [*run.find_raw_files().values()]
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("set/train.xyz", True),
        ("set/*.xyz", True),
        ("**/*.xyz", True),
        ("**/set/**/tr*", True),
        ("*.xyz", False),
        ("set/*/*.xyz", False),
        ("set", False),
    ],
)
def test_what_can_be_fetched_counts_as_there(workshop, shelf, name, result):
    """Oracle: the same patterns when the files are there."""
    _, declared = shelf
    fetched = make_dataset(workshop, declared)
    run = make_dataset(workshop, declared, pattern=name)
    before = list_files(run)
    assert (before is not None) == result
    fetch(fetched, [])
    assert list_files(run) == before


@pytest.mark.parametrize(
    "name", ["../a.xyz", "/a.xyz", "set/../../a.xyz", "a b.xyz", "./a.xyz", "x/../a", ".hidden"]
)
def test_downloads_lie_beside_the_dataset_file(workshop, shelf, name):
    _, declared = shelf
    with pytest.raises(ValueError, match=r"alloys.yaml.*has to be a path below the folder"):
        make_dataset(workshop, {name: declared["set/train.xyz"]})
    with pytest.raises(ValueError, match=r"downloads.a.xyz.url: .*\n.*downloads.a.xyz.sha256: "):
        make_dataset(workshop, {"a.xyz": {"url": "ssh://x", "sha256": "123"}})


def test_a_server_cannot_send_to_a_file_of_this_machine(workshop, shelf):
    """Which a `file://` of the dataset file may name, and nobody else."""
    folder, declared = shelf

    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"file://{folder}/train.xyz")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Redirect) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/train.xyz"
        declared["set/train.xyz"]["url"] = url
        with pytest.raises(ValueError, match=rf"{url}: cannot be fetched .*by hand"):
            fetch(make_dataset(workshop, declared), ["set/train.xyz"])
        server.shutdown()
    assert not (workshop.datasets / "set/train.xyz").exists()
