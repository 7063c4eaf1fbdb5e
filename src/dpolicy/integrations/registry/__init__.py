"""Import and export of entries of the public registry of differential privacy deployments."""

from dpolicy.integrations.registry.registry_export import (
    CURATOR_TYPES,
    EMBEDDED_MEANING_PREFIX,
    EMBEDDED_RELEASE_PREFIX,
    PLACEHOLDER,
    entry_text,
    registry_entry,
)
from dpolicy.integrations.registry.registry_import import (
    PROBLEMS,
    RegistryImportOptions,
    is_registry_entry,
    release_body_from_entry,
)

__all__ = [
    "CURATOR_TYPES",
    "EMBEDDED_MEANING_PREFIX",
    "EMBEDDED_RELEASE_PREFIX",
    "PLACEHOLDER",
    "PROBLEMS",
    "RegistryImportOptions",
    "entry_text",
    "is_registry_entry",
    "registry_entry",
    "release_body_from_entry",
]
