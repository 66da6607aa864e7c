"""Kernels of SU(N) matrices by Triton's compiler, which needs no GPU.

Their numbers, by Triton's interpreter and on a GPU, are compared by the contract of each family.
"""

from importlib import import_module

import pytest

from tiers import run_first

# Of each kernel: what is given, and what it makes; "m" are matrices, "r" real numbers.
MATRICES = {
    ("angles", "_find_angles"): ("m", "r"),
    ("angles", "_differentiate_angles"): ("mr", "m"),
    ("exponential", "_exponentiate"): ("m", "m"),
    ("exponential", "_differentiate_exponential"): ("mm", "m"),
    ("logarithm", "_take_logarithm"): ("m", "m"),
    ("logarithm", "_differentiate_logarithm"): ("mmm", "m"),
    ("projection", "_project"): ("m", "m"),
    ("projection", "_differentiate_polar"): ("mmm", "m"),
    ("residual", "_move_links"): ("mmr", "mr"),
    ("residual", "_differentiate_step"): ("mmrmmr", "mmr"),
    ("spectral", "_map_matrices"): ("mr", "mr"),
    ("spectral", "_differentiate_map"): ("mrmr", "mr"),
}
CONSTANTS = {
    "angles": {"NOISE": 1e-14},
    "projection": {"SPECIAL": True},
    "residual": {"INVERSE": True},
    "spectral": {"NOISE": 1e-14, "BINS": 8, "INVERSE": True},
}
LINKS = {
    ("paths", "_multiply_path"): (["links", "out"], ("*i64", "*i8")),
    ("paths", "_differentiate_link"): (["links", "by", "out"], ("*i64", "*i8", "*i64", "*i64")),
    ("staples", "_multiply_staples"): (["s", "out"], ("*i64", "*i64", "*i8")),
    ("staples", "_differentiate_link"): (["s", "out", "by"], ("*i64", "*i64", "*i8")),
}


def find_kernel(family, name, real, n_colours):
    """Return a kernel with its signature and constants."""
    cuda = import_module(f"pipeline_kernels.su3.{family}.cuda")
    constants = {"N": n_colours, **CONSTANTS.get(family, {})}
    if (family, name) in MATRICES:
        pointers = {"m": f"*{real}", "r": "*fp64"}
        given, made = (tuple(pointers[x] for x in kinds) for kinds in MATRICES[family, name])
        signature = {"inputs": given, "results": made, "total": "i64"}
        if family == "residual":
            signature |= {"tables": ("*fp64", "*fp64"), "n_paths": "i32"}
    else:
        arrays, tables = LINKS[family, name]
        signature = dict.fromkeys(arrays, f"*{real}")
        if family == "paths":
            signature |= {"plan": tables, "sizes": ("i64",) * 4}
            constants["LENGTH"] = 3
        else:
            signature = {"arrays": tuple(signature.values())}
            signature |= {"tables": tables, "sizes": ("i32",) * 3}
            constants["D"] = 2 * n_colours - 2  # of N = 3, the four of QCD
    from pipeline_kernels.su3 import matrices_cuda

    constants["BLOCK"] = getattr(cuda, "BLOCK", matrices_cuda.BLOCK)
    return getattr(cuda, name), signature | dict.fromkeys(constants, "constexpr"), constants


KERNELS = [*MATRICES, *LINKS]
SHORT = [("angles", "_find_angles"), ("paths", "_multiply_path")]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", run_first(KERNELS, *SHORT), ids=" ".join)
def test_kernels_compile_for_a_gpu(compiled, kernel):
    assert compiled(90, *find_kernel(*kernel, "fp32", 2))["cubin"]


@pytest.mark.slow
@pytest.mark.parametrize("real", run_first(["fp64", "fp32"]))
@pytest.mark.parametrize("kernel", KERNELS, ids=" ".join)
def test_kernels_of_three_colours_are_understood_by_the_compiler(front_end, kernel, real):
    assert "tt.store" in front_end(90, *find_kernel(*kernel, real, 3))
