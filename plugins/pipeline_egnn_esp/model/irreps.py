"""Channels of the blocks of each layer: features gain degrees, then parities, layer by layer.

All features are natural at first, and atoms have degree 0 only. Without parity every block but the
first reads and writes all channels. With parity unnatural components first appear in edge blocks,
between orders m and -m, hence not in order 0; atoms receive them a layer later.
"""

from dataclasses import dataclass
from typing import Any

from pipeline_egnn_esp.channels import Channels
from pipeline_egnn_esp.options import ESPOptions


@dataclass(frozen=True)
class Stage:
    """Channels of a block.

    Attributes:
        atoms: Input channels of atoms that may be nonzero; the first ones.
        edges: Input channels of edges that may be nonzero.
        outputs: Output channels that may be nonzero.
        hidden: Channels of messages.
        values: Channels of a message that each head sums.
        feed_forward: Hidden channels of the feed-forward layer.
        mmax: Highest order of messages.
        axial: Whether inputs have unnatural components of order 0.
        scalar_atoms: Whether features of atoms are true scalars only.
        scalar_edges: Whether features of edges are true scalars only.
    """

    atoms: Channels
    edges: Channels
    outputs: Channels
    hidden: Channels
    values: Channels
    feed_forward: Channels
    mmax: int
    axial: bool
    scalar_atoms: bool
    scalar_edges: bool


def make_node_stage(options: ESPOptions, layer: int) -> Stage:
    """Return the channels of a node block.

    Features of degree 0 have order 0 alone in the frame of an edge. Messages of the first layer are
    then of order 0; other orders, which edges may have from their surroundings, act from the first
    edge block on.

    Args:
        options: Sizes of the network.
        layer: Counted from 0.
    """
    return _make_stage(
        options,
        atoms=layer > 1,
        edges=layer > 0,
        outputs=layer > 0,
        mmax=options.lmax if layer else 0,
        axial=layer > 1,
        scalar_atoms=layer == 0,
        scalar_edges=layer == 0 and options.bond_cutoff is None,
    )


def make_edge_stage(options: ESPOptions, layer: int) -> Stage:
    """Return the channels of an edge block; arguments as above."""
    return _make_stage(
        options,
        atoms=layer > 0,
        edges=layer > 0,
        outputs=True,
        mmax=options.lmax,
        axial=layer > 0,
        scalar_atoms=False,
        scalar_edges=layer == 0 and options.bond_cutoff is None,
    )


def _make_stage(
    options: ESPOptions, *, atoms: bool, edges: bool, outputs: bool, **others: Any
) -> Stage:
    """Return a stage; flags mark the features with unnatural channels."""

    def choose(count: int, unnatural: bool) -> Channels:
        channels = options.split(count)
        return channels if unnatural else Channels(channels.natural)

    return Stage(
        atoms=choose(options.channels, atoms),
        edges=choose(options.channels, edges),
        outputs=choose(options.channels, outputs),
        hidden=choose(options.hidden_channels, outputs),
        values=choose(options.value_channels, outputs),
        feed_forward=choose(options.feed_forward_channels, outputs),
        **others,
    )
