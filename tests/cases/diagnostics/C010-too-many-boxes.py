import json
from pathlib import Path

from dpolicy.integrations.cohere import read_requests, read_schema, release_body_from_request

schema, _ = read_schema(json.loads(Path("schema.json").read_text()))
requests = json.loads(Path("requests_0.json").read_text())
even_ages = {"age": {"In": list(range(0, 121, 2))}}
requests[0]["dnf"]["conjunctions"][0]["predicates"] = even_ages
requests[0]["privacy_unit_selection"] = {"User": [[n, n] for n in range(0, 200, 2)]}
(request,), _ = read_requests(requests, schema)
_, problems = release_body_from_request(request, schema, cohort="cohort")
print(*problems, sep="\n")
