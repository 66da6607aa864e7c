"""Stage `evaluate`: quality and cost of a trained flow.

`run.metrics` has the header of the engine's metrics, `headline` with a verdict and numbers for
the report, and `flow`:

| key          | content                                                                         |
|--------------|---------------------------------------------------------------------------------|
| `prior`      | "haar" or "ensemble"                                                            |
| `action`     | target action of the flow; with an ensemble also `start`, the action of the     |
|              | base distribution                                                               |
| `lattices`   | a report for each, the lattice of the training first; for a flow that starts    |
|              | from an ensemble one for each dataset                                           |
| `volume_law` | ESS on each lattice, and ESS(V0)^(V/V0)                                         |
| `cost`       | of an independent configuration, see `cost`; None if not timed                  |

A report; numbers with errors are `value` and `error`:

| key                   | content                                                                |
|-----------------------|------------------------------------------------------------------------|
| `extents`, `volume`   | the lattice; with an ensemble `dataset`, its name                      |
| `n_samples`           | samples drawn or mapped by the flow                                    |
| `ess`                 | effective sample size over their number (Eq. 11)                       |
| `k_hat`               | Pareto shape of the weights, None without a tail; `k_hat_limit` beyond |
|                       | which errors are not reliable                                          |
| `log_weight_variance` | of log w                                                               |
| `log_z`               | `elbo` <= log Z <= `eubo` (`from` "ensemble", or "reweighted": then    |
|                       | without guarantee), `estimate`, `known`, and the distance of the two   |
|                       | in standard errors, `sigmas`; with an ensemble the log of the ratio of |
|                       | both Z                                                                 |
| `kl`                  | `reverse` KL(q, p), `forward` KL(p, q), by the `log_z` that it names;  |
|                       | `reverse_estimate` with the estimate of the same samples, less noisy   |
| `forward`             | from inversely mapped target configurations: `n_configurations`,       |
|                       | `ess`, `log_z`; None if there are none                                 |
| `metropolis`          | `acceptance`, `longest_stay`, `tau_int` of the plaquette in proposals, |
|                       | None if the chain was stuck; None with an ensemble                     |
| `identity`            | with an ensemble: weights without the flow                             |
| `observables`         | by name: `flow` reweighted, `chain`, `ensemble`, `known`, and the      |
|                       | distances of the first from the last two in `sigmas`                   |

`run.predictions` is described in `predictions`.
"""
