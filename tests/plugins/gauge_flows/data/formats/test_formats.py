"""Files of links.

Oracles: checksums, plaquette and trace that pyquda_io (of PyQUDA-Utils 0.10.54, MIT) computes for
the same links; it also read the files written here, and those that it wrote were read; layouts of
the ILDG and NERSC specifications.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.formats import (
    Configuration,
    read_ildg,
    read_nersc,
    write_ildg,
    write_nersc,
)
from pipeline_gauge_flows.data.formats.configuration import convert_to_file_order
from pipeline_gauge_flows.data.formats.ildg import compute_checksums
from pipeline_gauge_flows.data.formats.lime import Record, read_records, write_records
from pipeline_gauge_flows.data.formats.nersc import compute_checksum
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot

LATTICE = Lattice((4, 2, 3, 5), 3)  # t, x, y, z
ACTION = ActionOptions(name="symanzik", beta=3.8, anisotropy=0.05)
SUMS = {">c16": ("02e4679d", "dd7044c6"), ">c8": ("92973115", "0184790c")}
EVEN = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
KINDS = {"ildg": (write_ildg, read_ildg), "nersc": (write_nersc, read_nersc)}
WORDS = {">c16": "a6000000", ">c8": "30000000"}


def make_exact_configuration() -> Configuration:
    """Return links whose elements 0, 1, -1, i, -i have no rounding errors."""
    group = []
    for order in permutations(range(3)):
        sign = 1 if order in EVEN else -1
        for a, b in product((1, 1j, -1, -1j), repeat=2):
            matrix = np.zeros((3, 3), dtype=np.complex128)
            matrix[range(3), order] = a, b, sign * np.conj(a * b)
            # Checksums tell -0 from 0.
            group.append(matrix + 0.0)
    n = np.arange(LATTICE.n_links)
    links = np.array(group)[(n * n + 7 * n // 3) % len(group)]
    return Configuration(LATTICE, links.reshape(LATTICE.shape), ACTION)


def draw_configuration(lattice: Lattice = LATTICE) -> Configuration:
    links = draw_hot(lattice, 1, torch.Generator().manual_seed(0))[0].numpy()
    return Configuration(lattice, links)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read(tmp_path, kind):
    write, read = KINDS[kind]
    for configuration in (draw_configuration(), make_exact_configuration()):
        path = tmp_path / "links"
        write(path, configuration)
        again = read(path)
        assert (again.lattice, again.action) == (configuration.lattice, configuration.action)
        np.testing.assert_allclose(again.links, configuration.links, rtol=0, atol=1e-14)
        assert list(tmp_path.iterdir()) == [path]


def test_ildg_of_single_precision_is_read(tmp_path):
    """The records of a file in double precision, its numbers and checksums in single precision."""
    configuration = draw_configuration()
    write_ildg(tmp_path / "double", configuration)
    records = {one.kind: one.data for one in read_records(tmp_path / "double")}
    links = convert_to_file_order(configuration).astype(">c8")
    records["ildg-format"] = records["ildg-format"].replace(b">64<", b">32<")
    records["ildg-binary-data"] = links.tobytes()
    sums = "<suma>{:08x}</suma><sumb>{:08x}</sumb>".format(*compute_checksums(links))
    records["scidac-checksum"] = sums.encode()
    with (tmp_path / "single").open("wb") as file:
        write_records(file, [Record(*one) for one in records.items()])
    again = read_ildg(tmp_path / "single").links
    np.testing.assert_allclose(again, configuration.links, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [">c8", ">c16"])
def test_checksums_are_those_of_another_program(dtype):
    configuration = make_exact_configuration()
    links = convert_to_file_order(configuration).astype(dtype)
    assert tuple(f"{value:08x}" for value in compute_checksums(links)) == SUMS[dtype]
    # That one sums a little-endian copy, whose words have the same values.
    assert f"{compute_checksum(links):08x}" == WORDS[dtype]


def test_files_have_checksums_plaquette_and_trace_of_another_program(tmp_path):
    configuration = make_exact_configuration()
    write_ildg(tmp_path / "a", configuration)
    write_nersc(tmp_path / "b", configuration)
    text = (tmp_path / "a").read_bytes()
    assert "<suma>{}</suma><sumb>{}</sumb>".format(*SUMS[">c16"]).encode() in text
    header = (tmp_path / "b").read_bytes().split(b"END_HEADER")[0].decode()
    assert f"CHECKSUM = {WORDS['>c16']}" in header
    values = dict(re.findall(r"(\w+) = (\S+)", header))
    assert float(values["PLAQUETTE"]) == pytest.approx(0.003703703703703704, abs=1e-14)
    assert float(values["LINK_TRACE"]) == pytest.approx(0.005555555555555556, abs=1e-14)


def test_layout_of_ildg(tmp_path):
    """Headers of 144 bytes, data filled up to 8 bytes, first the format, then the links."""
    path = tmp_path / "a.ildg"
    write_ildg(path, make_exact_configuration())
    content, position, records = path.read_bytes(), 0, {}
    while position < len(content):
        magic, version, _, length = struct.unpack_from(">IHHQ", content, position)
        assert (magic, version) == (0x456789AB, 1)
        kind = content[position + 16 : position + 144].rstrip(b"\0").decode()
        records[kind] = content[position + 144 : position + 144 + length]
        position += 144 + (length + 7) // 8 * 8
    assert list(records)[:2] == ["ildg-format", "ildg-binary-data"]
    assert b"<lx>2</lx>\n  <ly>3</ly>\n  <lz>5</lz>\n  <lt>4</lt>" in records["ildg-format"]
    assert len(records["ildg-binary-data"]) == LATTICE.n_links * 9 * 16


@pytest.mark.parametrize("kind", ["IEEE32", "IEEE32LITTLE", "IEEE64", "IEEE64LITTLE", "IEEE64BIG"])
@pytest.mark.parametrize("lattice", [LATTICE, Lattice((2, 3, 2, 4), 2)])
def test_nersc_with_rows_left_out_and_other_byte_orders(tmp_path, kind, lattice):
    configuration = draw_configuration(lattice)
    n = lattice.n_colours
    write_nersc(tmp_path / "whole", configuration)
    header = (tmp_path / "whole").read_bytes().split(b"END_HEADER")[0].decode()
    order = ">" if kind.endswith("BIG") else "<"
    rows = convert_to_file_order(configuration)[..., : n - 1, :]
    rows = np.ascontiguousarray(rows.astype(f"{order}c{8 if '32' in kind else 16}"))
    words = int(rows.view(f"{order}u4").sum(dtype=np.uint64)) % 2**32
    for key, value in (
        ("DATATYPE", f"4D_SU{n}_GAUGE"),
        ("FLOATING_POINT", kind),
        ("CHECKSUM", f"{words:x}"),
    ):
        header = re.sub(rf"^{key} = .*$", f"{key} = {value}", header, flags=re.MULTILINE)
    path = tmp_path / "rows"
    path.write_bytes(f"{header}END_HEADER\n".encode() + rows.tobytes())
    np.testing.assert_allclose(read_nersc(path).links, configuration.links, rtol=0, atol=1e-6)


def test_ildg_is_for_su3():
    configuration = draw_configuration(Lattice((2, 2, 2, 2), 2))
    with pytest.raises(ValueError, match=r"hold SU\(3\), not SU\(2\); write NERSC"):
        write_ildg(Path("a.ildg"), configuration)


Change = Callable[[bytes], bytes]


def flip_bit(content: bytes) -> bytes:
    """Return a file of which one bit of the links is another."""
    place = len(content) * 2 // 3
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def replace_text(old: str, new: str) -> Change:
    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode())

    return change


DAMAGED_ILDG = [
    (flip_bit, "checksum sum[ab] is .* damaged"),
    (lambda content: content[: len(content) // 2], "'ildg-binary-data' has .* truncated"),
    (lambda content: content[:8] + b"\xff" * 8 + content[16:], "of 18446744073709551615 bytes"),
    (lambda content: content[:100], "ends within the header"),
    (lambda content: b"BEGIN" + content, "no LIME record at byte 0.*another format"),
    (lambda content: b"", "has no record 'ildg-format'"),
    (replace_text("<lx>2</lx>", "<lx>4</lx>"), "69120 bytes of links, expected 138240"),
    (replace_text("<lx>2</lx>", "<lx>x</lx>"), "<lx> is 'x'"),
    (replace_text("<lx>2</lx>", "          "), "lacks <lx>"),
    (replace_text("su3gauge", "su2gauge"), "field 'su2gauge'"),
    (replace_text("<precision>64", "<precision>16"), "precision 16"),
    (replace_text('"beta"', '"veta"'), "cannot be read"),
]
DAMAGED_NERSC = [
    (flip_bit, "CHECKSUM is .* damaged"),
    (lambda content: content[:-8], "69112 bytes of links, expected 69120"),
    (lambda content: content[:50], "does not begin with a NERSC header"),
    (lambda content: content[20:], "does not begin with a NERSC header"),
    (replace_text("DIMENSION_1 = 2", "DIMENSION_1 = 3"), "bytes of links, expected"),
    (replace_text("DIMENSION_1 = 2", "DIMENSION_1 = -"), "DIMENSION_1 = '-'"),
    (replace_text("DIMENSION_1", "DIMENSION_5"), "lacks DIMENSION_1"),
    (replace_text("4D_SU3_GAUGE", "3D_SU3_GAUGE"), "DATATYPE '3D_SU3_GAUGE_3x3'"),
    (replace_text("IEEE64BIG", "IEEE80BIG"), "FLOATING_POINT 'IEEE80BIG'"),
    (replace_text("PLAQUETTE = 0", "PLAQUETTE = 1"), "PLAQUETTE is 0.00370370, the header has"),
    (replace_text("LINK_TRACE = 0", "LINK_TRACE = 1"), "LINK_TRACE is 0.00555556"),
    (replace_text("LINK_TRACE = 0", "LINK_TRACE = x"), "LINK_TRACE = 'x"),
    (replace_text("CHECKSUM = a6", "CHECKSUM = xy"), "CHECKSUM = 'xy"),
    (replace_text('"beta"', '"veta"'), "cannot be read"),
]


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        *(("ildg", *one) for one in DAMAGED_ILDG),
        *(("nersc", *one) for one in DAMAGED_NERSC),
    ],
)
def test_damaged_files_are_refused_by_their_name(tmp_path, kind, change, message):
    write, read = KINDS[kind]
    path = tmp_path / f"a.{kind}"
    write(path, make_exact_configuration())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (1.001, r"480 of 480 links are not in SU\(3\)"),
        (np.exp(0.1j), r"not in SU\(3\)"),
        (np.where(np.arange(4) == 2, np.nan, 1)[:, None, None, None], "finite"),
    ],
)
def test_links_outside_the_group_are_refused(tmp_path, kind, factor, message):
    sound, (write, read) = make_exact_configuration(), KINDS[kind]
    write(tmp_path / "links", Configuration(sound.lattice, sound.links * factor))
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "links")
