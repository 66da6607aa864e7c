"""Outputs of CP2K that tests share."""

import gzip
from pathlib import Path

from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.cp2k import READER

RUNS = Path(__file__).parent / "cp2k_runs"


HFO2 = Path(__file__).parents[4] / "workflows" / "datasets" / "hfo2"


def read_frames(path):
    return list(open_frames(path, READER, {}))


def unpack(path, folder):
    target = folder / path.stem
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target
