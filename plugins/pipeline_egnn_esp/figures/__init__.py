"""Figures of a trained model: its errors by distance and by orbitals, its bands."""

from typing import Final

from pipeline_core.figures import Figure
from pipeline_egnn_esp.figures import distances, spectra, violins

FIGURES: Final = [
    Figure(
        name="figure8_distance",
        title="Elements of H against distance",
        caption="Left: magnitudes of the elements between two atoms in the held-out structures. "
        "Right: errors of the predicted ones. Lines: means over shells of half an Å, also of what "
        "the best function of the distance alone leaves. Dashed: the cutoff, beyond which zero is "
        "predicted. Elements below the lower edge lie on it.",
        category="Accuracy",
        draw=distances.draw,
    ),
    Figure(
        name="figure8_errors",
        title="Errors by distance and by orbitals",
        caption="Magnitudes of the errors in the held-out structures, between their 2.5th and "
        "97.5th percentiles; of one of each hermitian pair. The black line is the mean of all.",
        category="Accuracy",
        draw=violins.draw,
    ),
    Figure(
        name="spectra",
        title="Bands and density of states",
        caption="Of the predicted Hamiltonian and of that of the data, with the overlap of the "
        "data. Energies count from the zero of the labels.",
        category="Accuracy",
        draw=spectra.draw,
    ),
]
