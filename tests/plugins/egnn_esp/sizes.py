"""How much of a structure a rank holds."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline_core.distributed import division, domains, owners, regions
from pipeline_core.distributed.pieces import PartPiece
from pipeline_core.neighbours import find_edges
from pipeline_core.samples import SampleFile, SampleWriter
from pipeline_egnn_esp.inference.collect import Blocks
from pipeline_egnn_esp.matrices import BlockMatrix


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
        for kind in (BlockMatrix, Blocks, SampleWriter, SampleFile):
            patch.setattr(kind, *getattr(self, f"_watch_{kind.__name__}")(kind))
        patch.setattr(division, "PartPiece", self._note_piece)

    def note(self, name, n_rows):
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
        return PartPiece(batch, *others)

    def _watch_BlockMatrix(self, kind):
        original = kind.__init__

        def init(matrix, *arguments, **named):
            original(matrix, *arguments, **named)
            self.note("blocks", len(matrix.block_atoms))

        return "__init__", init

    def _watch_Blocks(self, kind):
        original = kind.__init__

        def init(blocks, *arguments, **named):
            original(blocks, *arguments, **named)
            self.note("collected", len(blocks.names))

        return "__init__", init

    def _watch_SampleWriter(self, kind):
        original = kind._append

        def append(writer, part):
            self.note("written", len(part["block_atoms"]))
            buffered = writer._buffer["block_atoms"]
            self.note("written", len(part["block_atoms"]) + sum(map(len, buffered)))
            original(writer, part)

        return "_append", append

    def _watch_SampleFile(self, kind):
        original = kind.read_rows

        def read_rows(file, name, index, rows):
            result = original(file, name, index, rows)
            kind_of_rows = file.fields[name].kind
            if kind_of_rows in ("edge", "block", "entry"):
                self.note(f"read {kind_of_rows}", len(result))
            return result

        return "read_rows", read_rows
