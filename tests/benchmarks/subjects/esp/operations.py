"""Numbers of operations, additions and multiplications, that the network needs.

Maps, rotations and their derivatives; norms, gates, softmax and what belongs to the blocks alone
are left out. A map is linear in features and weights, so each derivative counts as the value.
"""

from torch import nn

from pipeline_egnn_esp.model.heads import CoupledLinear
from pipeline_egnn_esp.model.layers import Attention, EdgeBlock, NodeBlock
from pipeline_egnn_esp.model.maps import DegreeLinear, FeedForward, SO2ParityWeights, SO2Weights
from pipeline_egnn_esp.model.messages import Messages
from pipeline_egnn_esp.model.network import Network


def step_operations(network: Network, n_atoms: int, n_edges: int) -> int:
    """Operations of a prediction and of its derivatives by features and weights."""
    heads = network.heads
    edge, atom = count_of_head(heads.edges), count_of_head(heads.nodes)
    for node_block, edge_block in zip(network.node_blocks, network.edge_blocks, strict=True):
        assert isinstance(node_block, NodeBlock)
        assert isinstance(edge_block, EdgeBlock)
        attention = node_block.attention
        edge += count_message_operations(attention) + count_of_messages(edge_block.messages)
        edge += count_rotations(edge_block.messages, edge_block.messages.hidden.total)
        edge += count_of_degrees(edge_block.out) + count_of_feed_forward(edge_block.feed_forward)
        atom += count_of_degrees(attention.out) + count_of_feed_forward(node_block.feed_forward)
    return 3 * (n_edges * edge + n_atoms * atom)


def count_message_operations(attention: Attention) -> int:
    """Operations of the message of an edge in a node block, forward."""
    summed = attention.heads * attention.values_of_head.total
    turned_back = count_rotations(attention.messages, summed)
    return count_of_messages(attention.messages) + count_in_frame(attention.values) + turned_back


def count_of_messages(part: Messages) -> int:
    """Operations of the radial weights, the rotation and the map of an edge."""
    radial = sum(
        linear.weight.numel() for linear in part.radial.perceptron if isinstance(linear, nn.Linear)
    )
    n_inputs, n_turned = sum(c.total for c in part.inputs), part.other_rows.shape[1]
    scalars = len(part.scalar_rows) * 2 * part.linear()[0][0].shape[1]
    share = n_turned / n_inputs  # of the map; of scalars degree 0 alone counts
    return round(
        2 * radial + count_rotations(part, n_turned) + share * count_in_frame(part.linear) + scalars
    )


def count_in_frame(part: SO2Weights | SO2ParityWeights) -> int:
    """Operations of a map in a frame.

    Each matrix of m > 0 multiplies two components; a pair of them takes three products. With parity
    weights that are there count; zeros that are multiplied, too, do not.
    """
    if isinstance(part, SO2ParityWeights):
        zero = [part.natural, *([] if part.unnatural is None else [part.unnatural])]
        return 2 * sum(w.numel() for w in zero) + 4 * sum(w.numel() for w in part.others)
    first, *others = (weight.numel() for weight in part.weights)
    return 2 * first + 3 * sum(others)


def count_rotations(part: Messages, channels: int) -> int:
    """Operations of turning features of so many channels."""
    degrees, mmax = range(part.layout.lmax + 1), part.layout.mmax
    entries = sum((2 * min(degree, mmax) + 1) * (2 * degree + 1) for degree in degrees)
    return 2 * entries * channels


def count_of_feed_forward(part: FeedForward) -> int:
    """Operations of a feed-forward layer for a row."""
    return count_of_degrees(part.up) + 2 * part.gates.weight.numel() + count_of_degrees(part.down)


def count_of_degrees(part: DegreeLinear) -> int:
    """Operations of a map of each degree for a row."""
    both = [part.weights, *([] if part.unnatural is None else [part.unnatural])]
    return sum(2 * (2 * degree + 1) * w.numel() for W in both for degree, w in enumerate(W))


def count_of_head(part: CoupledLinear) -> int:
    """Operations of a map to irreps for a row."""
    both = [*enumerate(part.weights), *((int(n), w) for n, w in part.unnatural.items())]
    return sum(2 * (2 * degree + 1) * w.numel() for degree, w in both)
