"""A training step of CHGNet (energy, forces, stress, moments) against the package chgnet.

    python tests/benchmarks/chgnet_step.py [--small] [--full] [--batch-sizes 8 16]
                                          [--device cuda] [--threads 2]

The last line printed is one JSON object; `chgnet/compare.py` says what is measured and how.
`roofline_share` is the time that the matrix products of a step without recomputation take at the
machine's rate, over ours.
"""

from subjects.chgnet.compare import run

if __name__ == "__main__":
    run("chgnet_step", "step", __doc__)
