"""Gate for dp_accounting."""

from dpolicy.integrations.dp_accounting.event_conversion import (
    event_from_mechanism,
    mechanisms_from_event,
)
from dpolicy.integrations.dp_accounting.gated_accountant import GatedPrivacyAccountant

__all__ = ["GatedPrivacyAccountant", "event_from_mechanism", "mechanisms_from_event"]
