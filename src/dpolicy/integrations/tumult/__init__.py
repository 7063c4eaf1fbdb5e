"""Gate for Tumult Analytics."""

from dpolicy.integrations.tumult.gated_session import GatedSession

__all__ = ["GatedSession"]
