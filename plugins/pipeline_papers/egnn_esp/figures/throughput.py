"""Figure 3: messages that a node block works on in a second, against their number."""

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.egnn_esp.figures.results import read_study


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw a curve for each size of embeddings, and its point of saturation."""
    content = read_study(experiment, "throughput")
    if content is None:
        return None
    figure, ((axes,),) = style.make_canvas(width=style.COLUMN, height=2.6)
    table: Rows = [["device", "threads", "channels", "messages", "seconds", "rate"]]
    for number, curve in enumerate(content["curves"]):
        colour, kib = style.choose_colour(number), curve["message_bytes"] / 1024
        label = f"E = {curve['channels']}: {kib:.3g} KiB a message"
        axes.plot(curve["messages"], curve["per_second"], "-o", color=colour, label=label)
        axes.axvline(curve["saturated"], color=colour, linestyle="--", linewidth=0.7, zorder=0)
        facts = [content["device"], content["threads"], curve["channels"]]
        rows = zip(curve["messages"], curve["seconds"], curve["per_second"], strict=True)
        table += [[*facts, *row] for row in rows]
    axes.set(xscale="log", yscale="log", xlabel="messages", ylabel="messages per second")
    style.set_log_ticks(axes.xaxis)
    style.set_log_ticks(axes.yaxis)
    figure.legend(loc="outside upper left", ncols=1)
    return figure, table
