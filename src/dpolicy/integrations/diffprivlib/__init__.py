"""Gate for diffprivlib. Importing it changes the functions and models of diffprivlib."""

from dpolicy.integrations.diffprivlib.gated_calls import gate_functions, gate_models
from dpolicy.integrations.diffprivlib.reserving_accountant import GatedDiffprivlibAccountant

__all__ = ["GatedDiffprivlibAccountant"]

gate_functions()
gate_models()
