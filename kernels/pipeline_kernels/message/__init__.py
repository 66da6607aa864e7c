"""Message passing: from nodes to edges, along edges, and from edges to nodes.

A message-passing layer (Gilmer et al., ICML 2017, arXiv:1704.01212, eq. 1) computes a message on
each edge from the nodes that it joins, and sums the messages that arrive at each node. A linear
map of concatenated features splits into one linear map per part,

    W [v_i, v_j, e_ij] = (W_1 v)_i + (W_2 v)_j + (W_3 e)_ij,

so that the matrix products run over the (few) nodes and only `gather_sum` runs over the (many)
edges. `segment_sum` is the inverse direction. Each is the other's derivative.

| package    | what it holds                                                       |
|------------|---------------------------------------------------------------------|
| `segments` | `gather_sum`, `segment_sum`, and the plan that both work by         |
| `softmax`  | attention: a softmax over each segment                              |
| `gated`    | messages of a gated perceptron: gather, perceptron and sum in one   |
| `tall`     | linear maps of features of many edges, and their derivatives        |
| `silu`     | the activation behind them, and its derivatives                     |
"""

from pipeline_kernels.message.segments import Segments, gather_sum, segment_sum

__all__ = ["Segments", "gather_sum", "segment_sum"]
