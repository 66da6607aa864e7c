"""Gated messages: gather, gated perceptron, factor and sum, twice differentiable, one operation.

With core and gate as the two halves of all vectors, the message m of an edge or an angle is that of
CHGNet (Zhou et al., FastCHGNet, arXiv:2412.20796, equations (4) to (6)),

    h = sum_t table_t[row_t]       s = sigmoid(h)           u = h s
    y = u W + b                    r = (mean(y²) + ε)^(-½)   n = y r
    z = gain n + shift             q = sigmoid(z)
    p = z_core q_core              m = p q_gate

and what a target receives is the sum of m times a factor. Without a hidden layer y = h. The layer
normalisation needs no mean, since the parameters that make y come centred. The rows of the last
table may be given as features and a map, x P, a product that is then never stored as a whole:
x takes a_h Pᵀ in what follows, and P takes xᵀ a_h + x'ᵀ g_h.

For a loss E with dE/dm = g_m, a prime for the change along a direction (h', g_m'), and a_x for the
derivative by x of the change E' of E, the chain rule gives

    g_z = (g_m q_gate dp, g_m p dq)        dp = q_core + p - p q_core,  dq = q_gate - q_gate²
    g_n = gain g_z                         k = mean(n g_n)
    g_y = r (g_n - n k)                    g_h = (g_y Wᵀ) du,           du = s + u - u s

    u' = h' du,   y' = u' W                c = mean(n y')
    n' = r (y' - n c)                      z' = gain n'
    p' = z'_core dp,   q' = z'_gate dq     m' = p' q_gate + p q'

    a_z = ((g_m q' + g_m' q_gate) dp + g_m q_gate d²p z'_core,
           (g_m p' + g_m' p) dq + g_m p d²q z'_gate)
    x = gain a_z - r (c g_n + k y')        a_y = r (x - n (mean(n x) + mean(g_n n')))
    a_h = (a_y Wᵀ) du + (g_y Wᵀ) d²u h'

    d²p = (1 - q_core)(dp + q_core - p q_core),   d²q = dq (1 - 2 q_gate)
    d²u = (1 - s)(du + s - u s)

| symbol          | argument                                     | shape                        |
|-----------------|----------------------------------------------|------------------------------|
| `table_t`       | `tables[t]`, core and gate side by side      | `(n_t, 2 H)`                 |
| `row_t`         | `route.tables[t].index`, or the message's own | `(n_messages,)`             |
| `x`             | `tables[2]`, features, with `projection`     | `(n_2, K)`                   |
| `P`             | `projection`                                 | `(2, K, H)`                  |
| factor          | `factors[route.factors.index]`               | `(n_factors, D)`             |
| target          | `route.targets.index`, or the message's own  | `(n_messages,)`              |
| `gain`, `shift` | of the normalisation                         | `(2, 1, D)`                  |
| `W`, `b`        | `hidden`                                     | `(2, H, D)`, `(2, 1, D)`     |
| `ε`             | 1e-5, as in torch                            |                              |

All are numbers without a unit; D is the number of features, H the width of the hidden layer.
"""

from pipeline_kernels.message.gated.op import (
    compute_messages,
    differentiate_messages,
    gated_messages,
)
from pipeline_kernels.message.gated.route import Inputs, Route

__all__ = ["Inputs", "Route", "compute_messages", "differentiate_messages", "gated_messages"]
