"""Stage `infer`: configurations, and derivatives of observables by parameters of the action.

`run.inference` holds what was requested of:

| group or attribute    | content                                                                |
|-----------------------|------------------------------------------------------------------------|
| `samples/log_weight`  | log w of the written configurations, (n,); files: see `sample`         |
| `samples/number`      | number of the proposal of each, (n,)                                   |
| `derivatives/`        | attribute `report`, JSON, see below; `log_weight` of the flow and      |
|                       | `log_weight_identity` without it, (n,)                                 |
| `derivatives/start/`  | of the configurations: actions `base` and `target`, and observables    |
| `derivatives/end/`    | the same after the flow                                                |

The report; numbers with errors are `value` and `error`, all of the same resampled configurations:

| key                   | content                                                                |
|-----------------------|------------------------------------------------------------------------|
| `parameter`           | name of the parameter of the action; from `start` to `end`             |
| `dataset`             | name of the dataset whose configurations were mapped                   |
| `n_configurations`    | mapped configurations; `n_blocks`, resampled blocks                    |
| `weights`             | `ess` with the `flow`, and with the `identity` in its place            |
| `observables`         | a report by name; `conjugate` is the derivative of the action;         |
|                       | for the pion `pion_<t>`, its correlator, and for fits from t_min       |
|                       | `pion_mass_<t_min>` and `pion_element_<t_min>`, log(M) / 2, whose      |
|                       | derivative is the matrix element of Eq. 15                             |
| `seconds`             | wall time of one rank per configuration, the terms of Eq. 19:          |
|                       | `flow`, `reweighting`, `measurement` once, and `generation` of the     |
|                       | second ensemble with its thermalisation, None without one              |
| `pion`                | `masses` of fit ranges [`t_min`, T/2] at `start` and `end`, and        |
|                       | `effective_masses` of t and t + 1; None if not requested               |
| `independent_configurations` | of both ensembles of the estimate `independent` together        |

The report on an observable:

| key                   | content                                                                |
|-----------------------|------------------------------------------------------------------------|
| `flow`                | Eqs. 12 and 13                                                         |
| `epsilon_same_step`   | without the flow, at the same step of the parameter                    |
| `epsilon_scan`        | at fractions of it, `fraction`; `epsilon_limit` for a step of zero;    |
|                       | `epsilon_best` the one with the least error                            |
| `independent`         | from two ensembles, None without a second one                          |
| `ends`                | covariances with the conjugate at `start` and `end`, of which the      |
|                       | `mean` equals the difference up to the square of the step; `sigmas`    |
|                       | between the flow's estimate and it                                     |
| `known`               | from theory, and `known_sigmas` of the flow's estimate from it         |
| `error_ratio`         | errors over the flow's: `same_step`, `best`, `independent`             |
"""
