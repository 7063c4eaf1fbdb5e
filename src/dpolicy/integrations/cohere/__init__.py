"""Import and export of the files of the Cohere planner."""

from dpolicy.integrations.cohere.cohere_export import (
    cohere_unit_name,
    dpolicy_unit_name,
    export_blocks,
    export_requests,
    export_schema,
)
from dpolicy.integrations.cohere.cohere_import import (
    boxes_from_formula,
    charged_rules,
    partitions_from_schema,
    release_body_from_request,
)
from dpolicy.integrations.cohere.cohere_model import (
    PROBLEMS,
    CohereBlock,
    CohereRequest,
    CohereSchema,
    CohereSection,
    blocks_json,
    requests_json,
    schema_json,
)
from dpolicy.integrations.cohere.cohere_reader import read_blocks, read_requests, read_schema

__all__ = [
    "PROBLEMS",
    "CohereBlock",
    "CohereRequest",
    "CohereSchema",
    "CohereSection",
    "blocks_json",
    "boxes_from_formula",
    "charged_rules",
    "cohere_unit_name",
    "dpolicy_unit_name",
    "export_blocks",
    "export_requests",
    "export_schema",
    "partitions_from_schema",
    "read_blocks",
    "read_requests",
    "read_schema",
    "release_body_from_request",
    "requests_json",
    "schema_json",
]
