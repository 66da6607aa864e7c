"""Virtual nodes of "augmented partitioning" (arXiv:2501.19110), and of networks of more layers."""

import numpy as np
from scipy.sparse import csr_array

from pipeline_kernels.partition import Rows


def count_virtual(labels: np.ndarray, rows: Rows, n_parts: int, depth: int) -> dict[str, float]:
    """Count the work of parts for exact own nodes after `depth` layers without exchange.

    A node is exact after a layer if it and all senders of its edges were exact before. A depth of 1
    is that of the paper: no edge is computed twice, nodes are.

    Args:
        labels: Part of each node, `(n_nodes,)`.
        rows: The graph.
        n_parts: Number of parts.
        depth: Number of layers, at least 1.

    Returns:
        Means and maxima over the parts, and how often nodes and edges are computed.
    """
    n, n_edges = len(rows), len(rows.senders)
    graph = csr_array((np.ones(n_edges, np.int64), rows.senders, rows.offsets), (n, n))
    own = csr_array((np.ones(n, np.int64), (labels, np.arange(n))), (n_parts, n))
    reach = own
    for _ in range(depth):
        exact, reach = reach, ((reach @ graph + reach) > 0).astype(np.int64)
    nodes, edges, virtual = reach.sum(1), exact @ rows.degrees, (reach - own).sum(1)
    return {
        "depth": depth,
        "virtual_mean": float(virtual.mean()),
        "virtual_max": int(virtual.max()),
        "times_nodes": float(nodes.sum() / n),
        "times_edges": float(edges.sum() / n_edges) if n_edges else 1.0,
        "edge_imbalance": float(edges.max() / edges.mean()) if n_edges else 1.0,
    }
