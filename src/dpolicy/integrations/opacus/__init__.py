"""Gate for Opacus."""

from dpolicy.integrations.opacus.gated_training import GatedTraining, gated_training

__all__ = ["GatedTraining", "gated_training"]
