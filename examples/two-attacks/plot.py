"""Plot of the measured attack beside the bounds: python examples/two-attacks/plot.py FILE

The plot needs Matplotlib (`pip install dpolicy[plot]`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from attack import PER_RELEASE_POLICY, POLICY, allowed_noise, attack, permitted_risk

RATES = np.linspace(0.001, 0.999, 200)


def measured_curve(noise: list[float]) -> list[float]:
    """Return the measured true-positive rate of the combined attack at each rate of `RATES`."""
    is_member, ratios = attack(noise)
    scores = ratios.sum(axis=1)
    thresholds = np.quantile(scores[~is_member], 1 - RATES)
    return [float((scores[is_member] > threshold).mean()) for threshold in thresholds]


def main(file: str) -> None:
    """Write the plot to a file."""
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "two-attacks"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 4.2), layout="constrained")
    unlimited, limited = allowed_noise(PER_RELEASE_POLICY), allowed_noise(POLICY)
    axes.plot(RATES, measured_curve(unlimited), color="C3", label="both, a limit for each only")
    axes.plot(RATES, measured_curve(limited), color="C0", label="both, a limit for all")
    axes.plot(RATES, measured_curve(unlimited[:1]), color="C2", label="one model")
    for section, label in (("cumulative", "bounds of both limits"), ("each_release", None)):
        curve = [rate for _, rate in permitted_risk(section).tradeoff_curve(RATES.tolist())]
        axes.plot(RATES, curve, color="0.2", linestyle=(0, (1, 3)), label=label)
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="lower right")
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
