"""What the processor can do: multiply-adds of vectors that never leave its registers.

Products of matrices by torch come close to it where their library uses the longest vectors, and to
half of it where not: MKL has no AVX-512 for processors of AMD.
"""

import time

import torch

from pipeline_kernels import native

CHAINS, ROUNDS, PIECES, REPEATS = 12, 100_000, 8, 10
SOURCE = f"""
#include <stdint.h>
#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES ((int64_t)(BYTES / sizeof(REAL)))
typedef REAL vec __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));

int64_t n_lanes(void) {{ return LANES; }}

/* Chains of which none waits for another, as many as hide how long a multiply-add takes. */
void multiply_add(const REAL *numbers, REAL *out, int64_t n_pieces, int64_t *counter)
{{
    for (int64_t p; (p = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < n_pieces;) {{
        const vec factor = (vec){{0}} + numbers[0], term = (vec){{0}} + numbers[1];
        vec x[{CHAINS}], sum = {{0}};
        for (int i = 0; i < {CHAINS}; i++)
            x[i] = factor + (REAL)i;
        for (int64_t round = 0; round < {ROUNDS}; round++)
            _Pragma("GCC unroll {CHAINS}") for (int i = 0; i < {CHAINS}; i++)
                x[i] = x[i] * factor + term;
        for (int i = 0; i < {CHAINS}; i++)
            sum += x[i];
        *(vec *)(out + p * LANES) = sum;
    }}
}}
"""


def measure_peak(dtype: torch.dtype, threads: int) -> float:
    """Return additions and multiplications of so many threads, 1e9 a second, the best of ten."""
    library = native.open_library("peak", SOURCE, REAL=native.C_TYPES[dtype])
    lanes = native.compute_size(library, "n_lanes")
    n_pieces = PIECES * threads
    numbers = torch.tensor([0.5, 1.0], dtype=dtype)
    out = torch.empty(n_pieces, lanes, dtype=dtype)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        native.call_routine(library, "multiply_add", numbers, out, n_pieces, n_threads=threads)
        times.append(time.perf_counter() - start)
    return 2e-9 * out.numel() * CHAINS * ROUNDS / min(times)
