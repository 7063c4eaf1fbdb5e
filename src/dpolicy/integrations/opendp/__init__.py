"""Gate for OpenDP."""

from dpolicy.integrations.opendp.gated_context import GatedContext

__all__ = ["GatedContext"]
