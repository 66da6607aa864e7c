"""Dynamics whose process dies at a certain calculation."""

import h5py

from pipeline_atoms.dynamics.dynamics import run_dynamics


class Interrupted(BaseException):
    """What nothing catches, like a signal."""


def simulate(folder, options, calculator, atoms, last=-1, model="model"):
    """Return arrays, the text of the trajectory and the number of calculations; None if it died."""
    n_done, calculate = 0, calculator.calculate

    def count(*arguments, **named):
        nonlocal n_done
        if n_done == last:
            raise Interrupted
        n_done += 1
        calculate(*arguments, **named)

    path, arrays = folder / f"md/{options.name}.extxyz", {}
    folder.mkdir(exist_ok=True)
    calculator.calculate = count
    try:
        with h5py.File(folder / "md.h5", "w", libver="v110") as file:
            group = file.create_group(options.name)
            run_dynamics(atoms, calculator, options, 0, path, group, model)
            group.visititems(
                lambda name, item: arrays.update({name: item[()]} if hasattr(item, "shape") else {})
            )
    except Interrupted:
        return None
    finally:
        calculator.calculate = calculate
    return arrays, path.read_text(), n_done
