"""Stage `infer`: cuts, stationary points and export of a fitted surface.

`run.inference` holds, energies in eV and coordinates in their own units:

| group or attribute    | content                                                                 |
|-----------------------|-------------------------------------------------------------------------|
| `coordinates`         | JSON list of the variables                                              |
| `minimum`             | lowest minimum of the fitted surface, (d,)                              |
| `minimum_energy`      | its energy                                                              |
| `cuts/<names>`        | `axis_0`, `axis_1`, energies `fitted` and `exact`; the attribute        |
|                       | `coordinates` names the axes                                            |
| `stationary/fitted`   | `order` (0 minimum, 1 saddle point), `x` (n, d), `energy`, `relative`   |
|                       | (cm⁻¹ above the lowest minimum), `frequencies` (n, d) cm⁻¹, imaginary   |
|                       | ones negative                                                           |
| `stationary/exact`    | the same of the exact surface, if there is one                          |
| `stationary/pairs`    | numbers of corresponding points, (n_pairs, 2): fitted, exact            |
"""
