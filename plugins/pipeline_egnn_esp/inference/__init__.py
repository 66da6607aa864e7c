"""Stage `infer`: Hamiltonians of possibly large structures, each divided over all ranks.

Every rank works on its atoms and their edges; rank 0 writes. `matrices/<name>.h5` in the folder of
the run holds one group a structure, which the reader `packed` takes if it has the overlap:

| dataset                   | content                                                             |
|---------------------------|---------------------------------------------------------------------|
| `positions`, `cell`, `pbc`, `atomic_numbers` | the structure, atoms in [-1/2, 1/2) of the cell  |
| `atom_pairs`              | (Rx, Ry, Rz, i, j) of one of each hermitian pair, sorted by i, j, R |
| `chunk_shapes`            | rows and columns of each block                                      |
| `H`                       | blocks one after the other, by rows, eV; zero as in the labels      |
| `S`                       | the same for the overlap, if available                              |

`run.inference` has a group for each structure:

| group or attribute | content                                                                    |
|--------------------|----------------------------------------------------------------------------|
| `memory`           | JSON list: planned and measured memory of each rank, bytes                 |
| `structure`        | JSON: the requested structure and outputs                                  |
| `atoms`, `edges`, `rows`, `ranks`, `matrices` | counts, `rows` those of H, and the file of H    |
| `atomic_numbers`   | of all atoms                                                               |
| `picture/`         | largest elements in pixels, and atoms, see `picture.write_picture`         |
| `levels/`          | `predicted`, and `reference` of the data if available, eV                  |
| `density/`         | `energy`, eV; `predicted`, `reference`, states per eV and cell             |
| `bands/`           | `k`, `x`, `ticks`, attribute `labels`; `predicted`, `reference`, (n_k, n)  |
"""

from typing import Final

SCHEMA: Final = "plugin/egnn_esp/inference"
"""Schema of `run.inference`."""
