"""Graph partition by METIS, without the positions of atoms."""

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.partition.rows import Rows

Numbers = NDArray[np.int64]


def make_adjacency(rows: Rows) -> tuple[Numbers, Numbers]:
    """Return the graph as METIS wants it: both directions, no repetitions, no self edges.

    Args:
        rows: The directed graph.

    Returns:
        Offsets `(n_nodes + 1,)` and neighbours `(2 * n_pairs,)`, in the type that METIS does not
        copy.
    """
    import pymetis
    from scipy.sparse import coo_array

    receivers = np.repeat(np.arange(len(rows), dtype=np.int32), rows.degrees)
    others = receivers != rows.senders
    receivers, senders = receivers[others], rows.senders[others]
    shape, present = (len(rows), len(rows)), np.ones(len(senders), np.bool_)
    directed = coo_array((present, (receivers, senders)), shape=shape).tocsr()
    both = directed + directed.T.tocsr()
    dtype = pymetis.zero_copy_dtype()
    return both.indptr.astype(dtype), both.indices.astype(dtype)


def cut_by_metis(graph: tuple[Numbers, Numbers], n_parts: int) -> Numbers:
    """Cut few edges: METIS, k-way, with its own defaults, every node of weight one.

    The baseline of the paper's figure 5. G. Karypis and V. Kumar, SIAM J. Sci. Comput. 20, 359
    (1998). Parts may be empty where there are few nodes for each.

    Args:
        graph: Result of `make_adjacency`.
        n_parts: Number of parts.

    Returns:
        The part of each node, `(n_nodes,)`.
    """
    return _call_metis(graph, n_parts)


def cut_by_metis_volume(graph: tuple[Numbers, Numbers], n_parts: int, degrees: Numbers) -> Numbers:
    """Send few nodes: METIS with its volume objective, nodes weighted by the edges they own.

    Args:
        graph: Result of `make_adjacency`.
        n_parts: Number of parts.
        degrees: Edges that each node owns, `(n_nodes,)`.

    Returns:
        The part of each node, `(n_nodes,)`.
    """
    import pymetis

    options = pymetis.Options(objtype=pymetis.ObjType.VOL)
    return _call_metis(graph, n_parts, options=options, vweights=degrees.tolist(), recursive=False)


def _call_metis(graph: tuple[Numbers, Numbers], n_parts: int, **settings: object) -> Numbers:
    import pymetis

    if n_parts == 1 or not len(graph[1]):
        return np.arange(len(graph[0]) - 1) % n_parts  # METIS has nothing to weigh
    division = pymetis.part_graph(n_parts, pymetis.CSRAdjacency(*graph), **settings)
    return np.array(division.vertex_part, dtype=np.int64)
