"""Kernels of networks whose features rotate with the structure.

| package          | what it does                                                              |
|------------------|---------------------------------------------------------------------------|
| `tensor_product` | features of neighbours times harmonics of edges, summed: MACE's messages  |
| `mixed_product`  | the same with the layer that makes its weights, which edges share         |
| `contraction`    | products of an atom's own features: MACE's higher body orders             |
| `linear`         | linear maps of each degree, for all atoms or for each element             |
| `so2`            | convolutions in the frames of edges, of eGNN-ESP                          |
| `feed_forward`   | a layer of gated features after a norm, of eGNN-ESP                       |
| `edges`          | distances, harmonics and spline places of edges, and the way back         |
| `density`        | densities of atoms about the middle of edges                              |
| `wigner`         | rotations to the frames of edges                                          |
"""
