import json
from pathlib import Path

from dpolicy.integrations.cohere import read_requests, read_schema

schema, _ = read_schema(json.loads(Path("schema.json").read_text()))
requests = json.loads(Path("requests_0.json").read_text())
requests[0]["dnf"]["conjunctions"][0]["predicates"] = {"country": {"Eq": "FR"}}
_, problems = read_requests(requests, schema)
print(*problems, sep="\n")
