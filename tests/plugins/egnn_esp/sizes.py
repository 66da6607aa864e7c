"""How much of a structure a rank holds."""

import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline_atoms.domains import construction as domains
from pipeline_atoms.domains import division, owners, regions
from pipeline_atoms.neighbours import find_edges
from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.training.micro_batches import DomainMicroBatch
from pipeline_egnn_esp.data.matrices import BlockMatrix
from pipeline_egnn_esp.inference.collect import Blocks


class Sizes(TorchDispatchMode):
    """Notes the largest arrays of this process that grow with the edges or blocks of a structure.

    Rows of tensors of features and of padded blocks are those of any tensor that an operation of
    torch returns; arrays are noted where they are read, made, collected and written.
    """

    def __init__(self, patch, shapes):
        super().__init__()
        self.largest, self._shapes = {}, shapes
        for module in (domains, owners, regions):
            patch.setattr(module, "find_edges", self._note_edges)
        patch.setattr(division, "DomainMicroBatch", self._note_piece)
        self._watch(patch, BlockMatrix.__init__, lambda _, m, *__: ("blocks", len(m.block_atoms)))
        self._watch(patch, Blocks.__init__, lambda _, b, *__: ("collected", len(b.names)))
        self._watch(patch, SampleFile.read_rows, count_read)
        self._watch(patch, SampleWriter._flush, count_written, before=True)

    def note(self, name, n_rows):
        if n_rows:
            self.largest[name] = max(self.largest.get(name, 0), n_rows)

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        outputs = function(*arguments, **(named or {}))
        for tensor in outputs if isinstance(outputs, tuple | list) else (outputs,):
            if isinstance(tensor, torch.Tensor) and tensor.ndim == 3:
                for name, shape in self._shapes.items():
                    if tuple(tensor.shape[1:]) == shape:
                        self.note(name, len(tensor))
        return outputs

    def _note_edges(self, structure, cutoff, receivers):
        edges = find_edges(structure, cutoff, receivers)
        self.note("edges", len(edges[0]))
        return edges

    def _note_piece(self, batch, *others):
        self.note("edge labels", len(batch["edge_blocks"]))
        self.note("edges", len(batch["edge_index"]))
        return DomainMicroBatch(batch, *others)

    def _watch(self, patch, method, count, *, before=False):
        """Note a number of rows before a method is called, or afterwards."""

        def call(one, *arguments, **named):
            if before:
                self.note(*count(one))
            result = method(one, *arguments, **named)
            if not before:
                self.note(*count(result, one, *arguments[:1]))
            return result

        kind, name = method.__qualname__.split(".")
        patch.setattr(getattr(sys.modules[method.__module__], kind), name, call)


def count_written(writer):
    return "written", sum(map(len, writer._buffer.get("block_atoms", [])))


def count_read(rows, file, name):
    return f"read {file.fields[name].kind}", len(rows)
