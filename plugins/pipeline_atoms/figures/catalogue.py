"""The figures of potentials and what they are used for, in the order of the report."""

from functools import partial
from typing import Final

from pipeline_atoms.figures import (
    barriers,
    committees,
    dataset,
    diffusion,
    dynamics,
    errors,
    glasses,
    materials,
    phonons,
    uncertainty,
)
from pipeline_core.figures import Figure, parity

FIGURES: Final = [
    Figure(
        name="dataset",
        title="Dataset",
        caption="Samples of each group by split; where there are forces, the size of those in the "
        "splits that were predicted; where numbers of atoms differ, the samples of each.",
        category="Data",
        draw=dataset.draw,
    ),
    Figure(
        name="parity_forces",
        title="Predicted against labelled forces",
        caption="Components of the forces on the atoms of the held-out split.",
        category="Overview",
        draw=partial(parity.draw_quantity, name="forces"),
    ),
    Figure(
        name="errors_by_element",
        title="Force error by element",
        caption="Mean absolute error of the force components on the held-out split; below each "
        "element the number of atoms.",
        category="Accuracy",
        draw=errors.draw_by_element,
    ),
    Figure(
        name="errors_by_force",
        title="Force error by size of the force",
        caption="Mean length of the error of the force vector over ranges of the labelled force "
        "that hold equally many atoms; the band is the middle half of the atoms, the dotted lines "
        "are errors of 10 % and 100 % of the force.",
        category="Accuracy",
        draw=errors.draw_by_size,
    ),
    Figure(
        name="uncertainty",
        title="Intervals of the committee",
        caption="Left: share of held-out labels within the intervals of a committee, against the "
        "probability that the intervals are made for; on the line they are right. Dashed: normal "
        "intervals of the members' spread as it is. Right: bins of equally many numbers by the "
        "half width of their 95 % intervals, and the half width that 95 % of their errors need.",
        category="Accuracy",
        draw=committees.draw_reliability,
    ),
    Figure(
        name="md_conservation",
        title="Conserved energy and temperature",
        caption="Left: change of the energy that exact dynamics would conserve, the heat exchanged "
        "with a thermostat included, and the slope of a straight line through it. Right: "
        "temperature; the dotted line is that of the heat bath.",
        category="Dynamics",
        draw=dynamics.draw_conservation,
    ),
    Figure(
        name="md_rdf",
        title="Radial distribution functions",
        caption="Over the second half of each run; bands are two standard errors over five blocks. "
        "Periodic images of an atom count, so beyond half of the cell its lattice vectors show.",
        category="Dynamics",
        draw=dynamics.draw_rdf,
    ),
    Figure(
        name="md_diffusion",
        title="Diffusion",
        caption="Mean square displacement of the atoms of an element over the second half of each "
        "run; bands are two standard errors over five blocks, and D is a sixth of the slope.",
        category="Dynamics",
        draw=diffusion.draw_diffusion,
    ),
    Figure(
        name="md_uncertainty",
        title="Where dynamics leaves the data",
        caption="Half width of the 95 % interval of a force component, of the atom for which it is "
        "the widest. Frames above the dotted line are flagged: forces there are guesses.",
        category="Dynamics",
        draw=uncertainty.draw_dynamics,
    ),
    Figure(
        name="relaxed_structures",
        title="Relaxed structures",
        caption="Left: change of lengths of the cell vectors and of the volume between the "
        "structures that were given and the relaxed ones. Right: energy gained.",
        category="Properties",
        draw=materials.draw_relaxation,
    ),
    Figure(
        name="equations_of_state",
        title="Equations of state",
        caption="Energy against volume, above the lowest of the panel, with the fitted equation "
        "and its bulk modulus. Structures of one composition share a panel.",
        category="Properties",
        draw=materials.draw_equations,
    ),
    Figure(
        name="elastic_constants",
        title="Elastic constants",
        caption="Change of each component of the stress (rows) by each component of the strain "
        "(columns), GPa, in the axes of the structure; dots are less than a thousandth of the "
        "largest.",
        category="Properties",
        draw=materials.draw_elasticity,
    ),
    Figure(
        name="phonons",
        title="Phonons",
        caption="Left: bands; imaginary frequencies are drawn below zero. Middle: density of "
        "states. Right: harmonic heat capacity and entropy, without imaginary modes; the dotted "
        "line is the law of Dulong and Petit. Longitudinal and transverse optical modes of polar "
        "crystals are not split at Γ.",
        category="Properties",
        draw=phonons.draw_phonons,
    ),
    Figure(
        name="vacancies",
        title="Vacancies",
        caption="Formation energies in a supercell of constant volume, with the atoms where they "
        "were in the crystal, and relaxed. The numbers behind the elements are those of the sites.",
        category="Properties",
        draw=materials.draw_vacancies,
    ),
    Figure(
        name="surfaces",
        title="Surfaces",
        caption="Energies of surfaces as they are cut, and after the atoms have relaxed. Letters "
        "number the terminations of one orientation.",
        category="Properties",
        draw=materials.draw_surfaces,
    ),
    Figure(
        name="barriers",
        title="Energy barriers",
        caption="Energies of the images along minimum-energy paths; between them, a polynomial of "
        "third degree with their forces. Dotted: the highest image, which has climbed.",
        category="Properties",
        draw=barriers.draw_barriers,
    ),
    Figure(
        name="amorphous_structures",
        title="Amorphous structures",
        caption="Left: potential energy from the melt to the glass, against the temperature of the "
        "bath. Right: radial distribution functions of the annealing; bands are two standard "
        "errors over blocks of it.",
        category="Properties",
        draw=glasses.draw_glasses,
    ),
]
