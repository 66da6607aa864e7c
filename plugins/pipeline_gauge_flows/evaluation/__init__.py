"""Stage `evaluate`: how good a trained flow is, and what it costs.

`run.metrics` has the header of the engine's metrics, `headline` with a verdict and numbers for
readers, and `flow`:

| key          | content                                                                         |
|--------------|---------------------------------------------------------------------------------|
| `prior`      | "haar" or "ensemble"                                                            |
| `action`     | of the distribution that the flow leads to; with an ensemble `start` that where |
|              | it starts                                                                       |
| `lattices`   | a report each, that of the training first; of a flow that starts from an        |
|              | ensemble one for each dataset                                                   |
| `volume_law` | ESS on each lattice beside ESS(V0)^(V/V0)                                       |
| `cost`       | of an independent configuration, see `cost`; None where it was not timed        |

A report; numbers with errors are `value` and `error`:

| key                   | content                                                                |
|-----------------------|------------------------------------------------------------------------|
| `extents`, `volume`   | the lattice; with an ensemble `dataset`, its name                      |
| `n_samples`           | that the flow has drawn, or mapped                                     |
| `ess`                 | effective sample size over their number (Eq. 11)                       |
| `k_hat`               | Pareto shape of the weights, None without a tail; `k_hat_limit` beyond |
|                       | which errors are not to be trusted                                     |
| `log_weight_variance` | of log w                                                               |
| `log_z`               | `elbo` <= log Z <= `eubo` (`from` "ensemble", or "reweighted": then    |
|                       | without guarantee), `estimate`, `known`, and the distance of the two   |
|                       | in standard errors, `sigmas`; with an ensemble the log of the ratio of |
|                       | both Z                                                                 |
| `kl`                  | `reverse` KL(q, p), `forward` KL(p, q), by the `log_z` that it says;   |
|                       | `reverse_estimate` by the estimate of the same samples, less noisy     |
| `forward`             | from configurations of the target, mapped back: `n_configurations`,    |
|                       | `ess`, `log_z`; None where there are none                              |
| `metropolis`          | `acceptance`, `longest_stay`, `tau_int` of the plaquette in proposals, |
|                       | None if the chain stood still; None with an ensemble                   |
| `identity`            | with an ensemble: weights without the flow                             |
| `observables`         | by name: `flow` reweighted, `chain`, `ensemble`, `known`, and the      |
|                       | distances of the first from the last two in `sigmas`                   |

`run.predictions` is described in `stored`.
"""
