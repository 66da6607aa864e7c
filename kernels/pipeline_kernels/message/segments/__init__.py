"""Rows of tables summed for each edge, and values of edges summed for each node.

For edges e, tables x_t and the row i_t(e) that e takes of table t,

    h_e = sum_t x_t[i_t(e)],        out_s = sum of v_e over the e with i(e) = s,

each the derivative of the other (Gilmer et al., ICML 2017, arXiv:1704.01212, eq. 1).
"""

from pipeline_kernels.message.segments.op import gather_sum, segment_sum
from pipeline_kernels.message.segments.plan import Segments

__all__ = ["Segments", "gather_sum", "segment_sum"]
