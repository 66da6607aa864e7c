"""A file of another program is read, and nothing that it names is run.

Oracle: the same bytes given to `pickle.loads`, which does what they say.
"""

import pickle
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from pipeline_mace.conversion.pickles import Record, list_state, read_module
from tiers import run_first


def write_archive(path, content, **storages):
    """Write a file as torch does, with a pickle of one's own."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/byteorder", "little")
        for key, numbers in storages.items():
            archive.writestr(f"archive/data/{key}", numbers)
    return path


def write_call(module, name, argument):
    """Return a pickle that calls something with a text."""
    return f"c{module}\n{name}\n(S{argument!r}\ntR.".encode()


PAYLOADS = {
    "system": ("posix", "system", "touch {}"),
    "exec": ("builtins", "exec", "__import__('pathlib').Path('{}').touch()"),
    "eval": ("__builtin__", "eval", "__import__('pathlib').Path('{}').touch()"),
    "path": ("pathlib", "Path.touch", "{}"),
    "open": ("io", "open", "{}"),
    "import": ("builtins", "__import__", "{}"),
    "torch": ("torch", "load", "{}"),
    "hub": ("torch.hub", "load", "{}"),
    "jit": ("torch.jit", "load", "{}"),
    "numpy": ("numpy", "load", "{}"),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_does_nothing_but_be_refused(name, tmp_path):
    module, function, argument = PAYLOADS[name]
    marker = tmp_path / "ran"
    content = write_call(module, function, argument.format(marker))
    path = write_archive(tmp_path / "bad.model", content)
    with pytest.raises(ValueError, match=rf"bad\.model: names '{module}\.{function}'"):
        read_module(path)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["system", "exec", "eval"])
def test_the_payloads_are_real(name, tmp_path):
    module, function, argument = PAYLOADS[name]
    marker = tmp_path / "ran"
    pickle.loads(write_call(module, function, argument.format(marker)))  # noqa: S301 - our own
    assert marker.exists()


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return exec, (PAYLOADS["exec"][2].format(self.path),)


def test_a_payload_inside_a_network_is_refused(tmp_path):
    network = nn.Sequential(nn.Linear(2, 2))
    network.extra = Payload(tmp_path / "ran")
    torch.save(network, tmp_path / "bad.model")
    with pytest.raises(ValueError, match=r"names '(builtins|__builtin__)\.exec'"):
        read_module(tmp_path / "bad.model")
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "bad.model", weights_only=False)
    assert (tmp_path / "ran").exists()


def test_names_of_the_packages_of_networks_become_records(tmp_path):
    """`torch.nn.Module.apply` and the like are names and no functions here."""
    content = write_call("mace.tools", "anything", "argument")
    record = read_module(write_archive(tmp_path / "a.model", content))
    assert (record.kind, record.arguments) == ("mace.tools.anything", ("argument",))
    chained = b"c__builtin__\ngetattr\n(cmace.tools\nanything\nS'__globals__'\ntR(tR."
    record = read_module(write_archive(tmp_path / "b.model", chained))
    assert isinstance(record, Record)
    assert record.kind == "mace.tools.anything.__globals__"


HOSTILE = {
    "getattr of no record": b"c__builtin__\ngetattr\n(ccollections\nOrderedDict\nS'fromkeys'\ntR.",
    "state of a function": b"c__builtin__\ngetattr\n}S'_call'\nI1\nsb.",
    "state of a class": b"cmace.a\nB\n}S'__setstate__'\nI1\nsb.",
    "state of a type": b"ccollections\nOrderedDict\n}S'fromkeys'\nI1\nsb.",
    "encoding": b"c_codecs\nencode\n(S'a'\nS'hex_codec'\ntR.",
    "reference": b"S'x'\nQ.",
    "extension": b"\x82\x01.",
    "memory": b"]r\xff\xff\xff\xff.",
    "nothing": b".",
    "cut": b"cmace.a\nB\n(S'x",
    "text": b"S'a network'\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bytes_that_are_no_network_are_refused_as_such(name, tmp_path):
    path = write_archive(tmp_path / "bad.model", HOSTILE[name])
    with pytest.raises(ValueError, match=r"bad\.model: (truncated, damaged|holds a (str|list))"):
        read_module(path)


@pytest.mark.parametrize("count", [0, 1, 100])
def test_a_truncated_file_is_refused(count, tmp_path):
    path = tmp_path / "cut.model"
    torch.save(make_modules(), path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * count // 101])
    with pytest.raises(ValueError, match=r"cut\.model: truncated, damaged"):
        read_module(path)


def explain(path):
    """What is said of a file that cannot be read; of others its name."""
    try:
        read_module(path)
    except ValueError as error:
        return str(error)
    return f"{path}: "


@pytest.mark.parametrize("seed", run_first(range(5)))
def test_of_a_damaged_pickle_comes_a_record_or_a_message(seed, tmp_path):
    torch.save(make_modules(), tmp_path / "a.model")
    with zipfile.ZipFile(tmp_path / "a.model") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
        content = np.frombuffer(archive.read(name), np.uint8)
        storages = {one.rpartition("/")[2]: archive.read(one) for one in archive.namelist()}
    random = np.random.default_rng(seed)
    for _ in range(100):
        damaged = content.copy()
        damaged[random.integers(len(content), size=2)] = random.integers(256, size=2)
        path = write_archive(tmp_path / "b.model", damaged.tobytes(), **storages)
        assert explain(path).startswith(f"{path}: ")


@pytest.mark.parametrize(("size", "offset", "stride"), [
    ("(I3\nt", 0, "(I1\nt"), ("(I2\nt", 1, "(I1\nt"), ("(I2\nt", 0, "(I-1\nt"),
    ("(I999999999999\nt", 0, "(I0\nt"), ("(I-1\nt", 0, "(I1\nt"),
])  # fmt: skip
def test_a_tensor_beyond_its_storage_is_refused(size, offset, stride, tmp_path):
    storage = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI2\ntQ"
    call = f"I{offset}\n{size}{stride}I00\nccollections\nOrderedDict\n(tRtR.".encode()
    content = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + call
    path = write_archive(tmp_path / "bad.model", content, **{"0": bytes(8)})
    with pytest.raises(ValueError, match="truncated, damaged"):
        read_module(path)


def test_other_files_are_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_module(tmp_path / "none.model")
    with zipfile.ZipFile(tmp_path / "a_compiled.model", "w") as archive:
        archive.writestr("archive/code/__torch__/mace.py", "")  # as torch.jit.save does
    with pytest.raises(ValueError, match=r"is compiled \(TorchScript\)"):
        read_module(tmp_path / "a_compiled.model")
    torch.save({"weight": torch.ones(1)}, tmp_path / "state.model")
    with pytest.raises(ValueError, match="holds a dict, not a network"):
        read_module(tmp_path / "state.model")


def make_modules():
    """Parameters, buffers, some of which are no part of the state, views and an empty tensor."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.ModuleList([nn.PReLU()]))
    module.register_buffer("hidden", torch.ones(2), persistent=False)
    module.register_buffer("numbers", torch.arange(12).view(3, 4).T[1:3])
    module.register_buffer("empty", torch.zeros(0, dtype=torch.float64))
    return module


def test_the_state_is_that_of_the_module(tmp_path):
    module = make_modules()
    torch.save(module, tmp_path / "a.model")
    state = list_state(read_module(tmp_path / "a.model"))
    expected = module.state_dict()
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor), name
        assert state[name].dtype == tensor.dtype


def test_numbers_of_numpy_are_numbers(tmp_path):
    module = nn.Linear(1, 1)
    numbers = [np.float64(0.1), np.float32(0.5), np.int64(-3), np.int32(7), np.bool_(True)]
    module.numbers = numbers
    torch.save(module, tmp_path / "a.model")
    assert read_module(tmp_path / "a.model").numbers == [one.item() for one in numbers]
    module.numbers = np.complex128(1)
    torch.save(module, tmp_path / "b.model")
    with pytest.raises(ValueError, match="numbers of numpy of the type 'c16'"):
        read_module(tmp_path / "b.model")
