"""Conformance tests that every interatomic potential passes, whatever its weights."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import ClassVar

import numpy as np
import pytest
import torch
from ase import Atoms
from numpy.typing import NDArray
from torch import Tensor

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.conservation import measure_conservation
from pipeline_atoms.potential.potential import Potential
from pipeline_atoms.potential.task import collate_structures
from pipeline_atoms.structure import Structure
from pipeline_atoms.testing.example_data import make_alloys
from pipeline_core.batch import Batch
from pipeline_core.project.run import Run
from pipeline_core.task import Outputs, build_task
from pipeline_core.testing import OnProject

Predict = Callable[..., Outputs]


def build_batch(structures: Sequence[Atoms], graph: GraphOptions, dtype: torch.dtype) -> Batch:
    """Collate structures with their graphs into one batch."""
    return collate_structures(map(Structure.of, structures), graph, dtype)


def draw_rotation(seed: int) -> NDArray[np.float64]:
    """Return a random orthogonal matrix (3, 3), a rotation or one with a reflection."""
    matrix, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return np.asarray(matrix)


class PotentialConformance(OnProject):
    """Conformance of a potential: a smooth energy, with forces and stress as its derivatives.

    All tests are in double precision unless they are about precision. They compare with symmetry
    and finite differences, so that they hold for random weights.

    For direct forces and stress (`Potential.direct`) symmetry is required, and the deviation of the
    forces from a gradient is reported as properties of the suite.
    """

    tolerance: ClassVar[float] = 1e-8
    """Largest deviation of equal numbers in double precision, eV and Å."""

    @pytest.fixture(scope="class")
    @classmethod
    def module(cls, run: Run) -> Potential:
        """The model with random weights, in double precision."""
        module = build_task(run).module.double().eval()
        assert isinstance(module, Potential)
        return module

    @pytest.fixture(scope="class")
    @classmethod
    def predict(cls, module: Potential, run: Run) -> Predict:
        """Function from structures to outputs."""
        graph = run.get_section("graph", GraphOptions)

        def predict(*structures: Atoms) -> Outputs:
            with torch.no_grad():
                outputs: Outputs = module(build_batch(structures, graph, torch.float64))
            return outputs

        return predict

    @pytest.fixture(scope="class")
    @classmethod
    def crystal(cls) -> Atoms:
        """A periodic structure without any symmetry."""
        return make_alloys(1, seed=1)[0]

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, crystal: Atoms) -> Atoms:
        """A molecule: the same atoms without a cell."""
        return Atoms(crystal.numbers, crystal.positions)

    def close(self, one: Tensor, other: Tensor) -> None:
        """Compare two tensors."""
        torch.testing.assert_close(one, other, rtol=self.tolerance, atol=self.tolerance)

    def test_all_that_is_promised_is_predicted(
        self, predict: Predict, run: Run, crystal: Atoms
    ) -> None:
        """Every promised field is there, of its shape, and finite."""
        outputs = predict(crystal, crystal)
        assert set(run.model_info.predicts) <= set(outputs)
        n_atoms = 2 * len(crystal)
        shapes = {
            "energy": (2,),
            "forces": (n_atoms, 3),
            "stress": (2, 3, 3),
            "magmoms": (n_atoms,),
        }
        for name, shape in shapes.items():
            if name in outputs:
                assert tuple(outputs[name].shape) == shape
                assert outputs[name].isfinite().all()

    def test_rotation_and_reflection(self, predict: Predict, crystal: Atoms) -> None:
        """Energies do not turn with the structure; forces and stress do."""
        before = predict(crystal)
        for seed in range(3):
            matrix = draw_rotation(seed)
            turned = crystal.copy()
            turned.set_cell(crystal.cell[:] @ matrix.T, scale_atoms=True)
            after, R = predict(turned), torch.tensor(matrix)
            self.close(after["energy"], before["energy"])
            if "forces" in before:
                self.close(after["forces"], before["forces"] @ R.T)
            if "stress" in before:
                self.close(after["stress"], R @ before["stress"] @ R.T)

    def test_translation_and_wrapping(self, predict: Predict, crystal: Atoms) -> None:
        """Neither the origin nor the choice of periodic images matters."""
        moved = crystal.copy()
        moved.translate([0.7, -5.1, 2.3])
        wrapped = moved.copy()
        wrapped.wrap()
        for name, value in predict(crystal).items():
            self.close(predict(moved)[name], value)
            self.close(predict(wrapped)[name], value)

    def test_permutation(self, predict: Predict, crystal: Atoms) -> None:
        """The order of the atoms does not matter."""
        order = [2, 0, 3, 1]
        before, after = predict(crystal), predict(crystal[order])
        for name, value in before.items():
            per_atom = len(value) == len(crystal) and name not in ("energy", "stress")
            self.close(after[name], value[order] if per_atom else value)

    def test_a_repeated_cell_is_the_same_crystal(self, predict: Predict, crystal: Atoms) -> None:
        """Twice the cell has twice the energy, the same forces and stress."""
        one, two = predict(crystal), predict(crystal.repeat((2, 1, 1)))
        self.close(two["energy"], 2 * one["energy"])
        if "forces" in one:
            self.close(two["forces"][: len(crystal)], one["forces"])
        if "stress" in one:
            self.close(two["stress"], one["stress"])

    def test_a_batch_equals_its_samples(
        self, predict: Predict, crystal: Atoms, cluster: Atoms
    ) -> None:
        """Structures of a batch do not influence each other."""
        structures = [crystal, cluster, crystal.repeat((1, 2, 1)), make_alloys(1, seed=2)[0]]
        together = predict(*structures)
        alone = [predict(atoms) for atoms in structures]
        for name, value in together.items():
            self.close(value, torch.cat([outputs[name] for outputs in alone]))

    @pytest.mark.parametrize("kind", ["crystal", "cluster"])
    def test_forces_are_minus_the_gradient(
        self, predict: Predict, module: Potential, kind: str, request: pytest.FixtureRequest
    ) -> None:
        """Forces agree with central differences of the energy."""
        if "forces" in module.direct:
            pytest.skip("the forces are not derivatives")
        atoms, h = request.getfixturevalue(kind), 1e-4
        forces = predict(atoms).get("forces")
        if forces is None:
            pytest.skip("the model predicts no forces")
        steps = [(a, x) for a in range(2) for x in range(3)]
        energies = []
        for atom, axis in steps:
            for sign in (1, -1):
                moved = atoms.copy()
                moved.positions[atom, axis] += sign * h
                energies.append(float(predict(moved)["energy"]))
        plus, minus = torch.tensor(energies, dtype=torch.float64).reshape(-1, 2).unbind(1)
        expected = -(plus - minus) / (2 * h)
        actual = torch.stack([forces[a, x] for a, x in steps])
        scale = float(forces.abs().max())
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4 * scale + 1e-7)

    def test_forces_add_up_to_zero(self, predict: Predict, crystal: Atoms, cluster: Atoms) -> None:
        """The net force on a structure is zero."""
        for atoms in (crystal, cluster):
            forces = predict(atoms).get("forces")
            if forces is None:
                pytest.skip("the model predicts no forces")
            self.close(forces.sum(0), torch.zeros(3, dtype=torch.float64))

    def test_only_direct_forces_have_a_curl(
        self,
        module: Potential,
        run: Run,
        crystal: Atoms,
        record_testsuite_property: Callable[[str, object], None],
    ) -> None:
        """Derived forces are the gradient of the energy; for direct forces curl is reported."""
        if "forces" not in module.predicts:
            pytest.skip("the model predicts no forces")
        batch = build_batch([crystal], run.get_section("graph", GraphOptions), torch.float64)
        for name, value in measure_conservation(module, batch).items():
            record_testsuite_property(f"{type(module).__name__} {name}", value)
            if "forces" in module.direct:
                assert np.isfinite(value)
            else:
                assert value < 1e-4, f"{name} of the forces is {value:.3g}"

    def test_inference_records_a_graph_for_derivatives_alone(
        self, module: Potential, run: Run, crystal: Atoms
    ) -> None:
        """Inference keeps tensors for differentiation only if an output is a derivative."""
        derived = {"forces", "stress"}.intersection(module.predicts) - module.direct
        batch = build_batch([crystal], run.get_section("graph", GraphOptions), torch.float64)
        kept: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), torch.no_grad():
            module(batch)
        assert bool(kept) == bool(derived), "the model records a graph that is not needed"

    def test_stress_is_the_derivative_by_strain(
        self, predict: Predict, module: Potential, crystal: Atoms
    ) -> None:
        """Stress is dE/dε / V by central differences; tension positive."""
        if "stress" in module.direct:
            pytest.skip("the stress is not a derivative")
        stress, h = predict(crystal).get("stress"), 1e-5
        if stress is None:
            pytest.skip("the model predicts no stress")
        for row, column in ((0, 0), (1, 2), (2, 0)):
            energies = []
            for sign in (1, -1):
                strain = np.zeros((3, 3))
                strain[row, column] += sign * h / 2
                strain[column, row] += sign * h / 2
                strained = crystal.copy()
                strained.set_cell(crystal.cell[:] @ (np.eye(3) + strain), scale_atoms=True)
                energies.append(float(predict(strained)["energy"]))
            expected = (energies[0] - energies[1]) / (2 * h * crystal.get_volume())
            scale = float(stress.abs().max())
            actual = float(stress[0, row, column])
            assert actual == pytest.approx(expected, rel=1e-4, abs=1e-4 * scale)

    def test_atoms_leave_smoothly(self, predict: Predict, cluster: Atoms, run: Run) -> None:
        """Energy and force go to zero at the cutoff."""
        cutoff = run.get_section("graph", GraphOptions).cutoff

        def at(distance: float) -> Outputs:
            # At this distance beyond the farthest atom along x only one bond crosses the cutoff.
            atoms = cluster.copy()
            edge = atoms.positions[atoms.positions[:, 0].argmax()]
            atoms.append("Cu")
            atoms.positions[-1] = edge + np.array([distance, 0.0, 0.0])
            return predict(atoms)

        inside, outside, bound = at(cutoff - 1e-4), at(cutoff + 1e-4), at(0.6 * cutoff)
        depth = float((bound["energy"] - outside["energy"]).abs())
        jump = float((inside["energy"] - outside["energy"]).abs())
        assert jump <= 1e-3 * depth + self.tolerance
        if "forces" in outside:
            pull = float(inside["forces"][-1].norm())
            assert pull <= 1e-2 * float(bound["forces"][-1].norm()) + self.tolerance

    def test_an_atom_out_of_reach_is_alone(
        self, predict: Predict, cluster: Atoms, run: Run
    ) -> None:
        """An atom beyond the cutoff neither feels nor disturbs the others."""
        cutoff = run.get_section("graph", GraphOptions).cutoff
        near, far = cluster.copy(), cluster.copy()
        for atoms, distance in ((near, 2 * cutoff), (far, 50 * cutoff)):
            atoms.append("Ag")
            atoms.positions[-1] = cluster.positions.max(0) + distance
        one, other, without = predict(near), predict(far), predict(cluster)
        for name, value in one.items():
            assert value.isfinite().all()
            self.close(other[name], value)
        if "forces" in one:
            self.close(one["forces"][:-1], without["forces"])
            self.close(one["forces"][-1], torch.zeros(3, dtype=torch.float64))

    @pytest.mark.parametrize("company", [False, True], ids=["by itself", "in a batch"])
    def test_a_structure_without_neighbours(
        self, module: Potential, run: Run, crystal: Atoms, *, company: bool
    ) -> None:
        """A cell that is expanded beyond the cutoff has an energy, and no forces or stress."""
        keeping = run.get_section("graph", GraphOptions).model_copy(update={"isolated": "keep"})
        far = crystal[:1]
        far.set_cell([5 * keeping.cutoff] * 3)
        structures = [far, crystal] if company else [far]
        outputs = module(build_batch(structures, keeping, torch.float64))
        assert torch.isfinite(outputs["energy"]).all()
        for name, rows in (("forces", slice(1)), ("stress", slice(1))):
            if name in outputs:
                assert not outputs[name][rows].any(), name

    def test_energies_of_free_atoms_are_added(
        self, module: Potential, run: Run, crystal: Atoms
    ) -> None:
        """The energy includes each atom's reference energy once."""
        graph, shifted = run.get_section("graph", GraphOptions), deepcopy(module)
        batch = build_batch([crystal], graph, torch.float64)
        with torch.no_grad():
            shifted.atom_energies += 3.0
            difference = shifted(batch)["energy"] - module(batch)["energy"]
        self.close(difference, torch.tensor([3.0 * len(crystal)], dtype=torch.float64))

    def test_a_compiled_model_predicts_the_same(
        self, module: Potential, run: Run, crystal: Atoms, cluster: Atoms
    ) -> None:
        """The model from `infer.compile` predicts the same, if compilation is supported."""
        if type(module).compile_inference is Potential.compile_inference:
            with pytest.raises(ValueError, match="not compiled"):
                module.compile_inference()
            return
        compiled = deepcopy(module).requires_grad_(False).compile_inference()
        graph = run.get_section("graph", GraphOptions)
        batch = build_batch([crystal, cluster], graph, torch.float64)
        with torch.no_grad():
            expected, actual = module(batch), compiled(batch)
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            scale = max(1.0, float(value.abs().max()))
            torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-6 * scale)

    def test_single_precision_agrees_with_double(
        self, module: Potential, run: Run, crystal: Atoms
    ) -> None:
        """The model runs in float32 and float64, with the same result."""
        graph, single = run.get_section("graph", GraphOptions), deepcopy(module).float()
        with torch.no_grad():
            exact = module(build_batch([crystal], graph, torch.float64))
            rough = single(build_batch([crystal], graph, torch.float32))
        for name, value in exact.items():
            scale = float(value.abs().max())
            actual = rough[name].double()
            torch.testing.assert_close(actual, value, rtol=1e-4, atol=1e-4 * scale + 1e-6)
        assert {p.dtype for p in single.parameters()} == {torch.float32}

    def test_nothing_that_comes_in_is_changed(
        self, module: Potential, run: Run, crystal: Atoms
    ) -> None:
        """A batch stays as it was."""
        batch = build_batch([crystal], run.get_section("graph", GraphOptions), torch.float64)
        before = {name: tensor.clone() for name, tensor in batch.items()}
        module(batch)
        assert batch.keys() == before.keys()
        assert all(torch.equal(batch[name], tensor) for name, tensor in before.items())

    def test_a_second_build_is_the_same_model(self, module: Potential, run: Run) -> None:
        """The seed of the run determines the weights."""
        again = build_task(run).module.double().state_dict()
        assert all(torch.equal(again[name], value) for name, value in module.state_dict().items())

    def test_every_parameter_can_learn(self, module: Potential, run: Run) -> None:
        """Some prediction depends on each parameter."""
        # A parameter that no prediction depends on would stop training on several ranks.
        batch = build_batch(
            make_alloys(3, seed=3), run.get_section("graph", GraphOptions), torch.float64
        )
        outputs = module(batch)
        total = sum((outputs[name] ** 2).sum() for name in outputs)
        assert isinstance(total, Tensor)
        names = [name for name, p in module.named_parameters() if p.requires_grad]
        parameters = [p for p in module.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        idle = [name for name, g in zip(names, gradients, strict=True) if g is None]
        assert not idle, f"no prediction depends on {', '.join(idle)}"
