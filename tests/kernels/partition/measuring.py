"""Metrics of a partition given by lists."""

import numpy as np

from pipeline_kernels.partition import PartitionMetrics, Rows


def measure_partition(labels, edges, n_parts) -> PartitionMetrics:
    """Group the edges, receiver and sender, and count the communication between parts."""
    labels = np.asarray(labels, np.int64)
    return Rows.of(edges, len(labels)).measure(labels, n_parts)
