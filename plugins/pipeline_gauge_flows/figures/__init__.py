"""Figures of every flow."""

from typing import Final

from pipeline_core.figures import Figure
from pipeline_gauge_flows.figures import (
    costs,
    derivatives,
    learning,
    observables,
    partition_function,
    shots,
    volumes,
    weights,
)

BOOTSTRAP: Final = "Errors are standard errors by the bootstrap."

FIGURES: Final = [
    Figure(
        name="learning",
        title="Learning curves",
        caption="Of every variant. Loss: the divergence but for a constant, dotted in training, "
        "full in validation. Effective sample size: of the validation draws. Norm of the gradient: "
        "mean over the steps of an epoch, before clipping.",
        category="Training",
        draw=learning.draw,
    ),
    Figure(
        name="derivatives",
        title="Derivatives by a parameter of the action",
        caption="Left: differences over the step of the parameter, from the same configurations "
        "with the flow (Eq. 13) and by ε-reweighting at parts of the step, 0 being its limit; "
        "independent: from two ensembles. They estimate the same up to the square of the step only "
        "at the whole step; at a part of it the derivative closer to the start. Band: minus the "
        "covariance with dS/dλ, its mean at both ends, with its error. Right: errors over that of "
        f"the flow, from as many configurations; {BOOTSTRAP.lower()} all of the same draws, but "
        "for independent ensembles. Grey: what the paper found for the pion in QCD.",
        category="Accuracy",
        draw=derivatives.draw,
    ),
    Figure(
        name="cost_samplers",
        title="What an independent configuration costs",
        caption="Seconds of a configuration and those of all cores together, medians in one "
        "process on this machine. A flow needs 1 / ESS proposals if averages are reweighted, or "
        "2 τ of its Markov chain; for an independent one the cheaper of both is taken, on a GPU by "
        "the time of the GPU. τ is the autocorrelation time of the plaquette. Break even: "
        "independent configurations that make good the training beside the cheapest Markov chain; "
        "without a number, the flow is never cheaper.",
        category="Cost",
        draw=costs.draw,
    ),
    Figure(
        name="log_z",
        title="Log Z between its bounds",
        caption="Left: lower bound, estimate and upper bound. The upper bound is one with an "
        "ensemble of the target; by weights of the flow's own samples it may lie too low. Right: "
        f"estimates from samples of the flow (full) and from an ensemble (hollow). {BOOTSTRAP}",
        category="Accuracy",
        draw=partition_function.draw,
    ),
    Figure(
        name="observables",
        title="Observables against theory and Markov chains",
        caption="Reweighted averages of the flow, on the lattice of the training. Shaded: one and "
        "two standard errors; of 20 independent points one lies outside. Observables of one flow "
        "are not independent.",
        category="Accuracy",
        draw=observables.draw,
    ),
    Figure(
        name="volumes",
        title="Effective sample size and volume",
        caption="The same flow on larger lattices. Lines: ESS(V₀)^(V/V₀), what distant regions "
        "that weigh independently give, with two standard errors of ESS(V₀).",
        category="Accuracy",
        draw=volumes.draw,
    ),
    Figure(
        name="noise_shots",
        title="Effective sample size and noise shots",
        caption="Determinants of quarks from pseudofermions, weights averaged over the shots of "
        "each configuration: mapped by a flow, conditional on the links before and after the flow "
        f"of links, and by none. Line: exact determinants. {BOOTSTRAP}",
        category="Accuracy",
        draw=shots.draw,
    ),
    Figure(
        name="weights",
        title="Weights",
        caption="Weights of samples of the flow; dotted: of configurations of the target, where "
        "there are some. Of an exact flow all lie at 0. Both densities differ by the factor w/Z, "
        "so that they cross at 0, and the dotted one shows what the flow reaches too rarely. First "
        "seed of each flow. Pareto k beyond 0.7: averages with the weights are not to be trusted.",
        category="Accuracy",
        draw=weights.draw,
    ),
]
