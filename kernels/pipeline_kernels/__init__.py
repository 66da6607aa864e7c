"""Numerical routines shared by the engine and the plugins: tensors in, tensors out.

Nothing here depends on a file, a configuration or a model. A kernel family is a package:

| module         | what it holds                                                                  |
|----------------|--------------------------------------------------------------------------------|
| `reference.py` | plain PyTorch that reads like the formula: the definition, the oracle of tests |
| `cpu.py`       | the one path on the CPU: routines in C, or loops in numba                      |
| `native.c`     | C where numba is too slow, compiled with the package or at first use           |
| `cuda.py`      | Triton, imported when the first CUDA tensor arrives                            |
| `op.py`        | the public functions, and the operators behind them, declared by `operators.py`|
| `__init__.py`  | the equation and its source; the public names                                  |

Rules that hold for each of them:

- The operator's default implementation is the reference, so it runs wherever torch runs; faster
  implementations are registered by device.
- A derivative is made of operators again, never of a kernel that autograd cannot see, so that
  forces can be trained: any order of derivative follows from the first.
- What can be prepared once per batch (a sort, offsets, a range check) lives in a frozen dataclass
  that the public functions take, not inside the operator.
- Results are reproducible to the last bit on one device: one thread (or one GPU program) sums each
  output element in a fixed order, however many threads there are.
- Threads are as many as torch's (`threads.py`), and compiled code is kept on disk.
- Wrong shapes, dtypes and devices raise `ValueError` in the public function (`checks.py`).
"""
