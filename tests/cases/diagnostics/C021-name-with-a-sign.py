import json
from pathlib import Path

from dpolicy.integrations.cohere import read_requests, read_schema, release_body_from_request

schema, _ = read_schema(json.loads(Path("schema.json").read_text()))
requests = json.loads(Path("requests_0.json").read_text())
requests[0]["attributes"] = ["zip×age"]
(request,), _ = read_requests(requests, schema)
_, problems = release_body_from_request(request, schema)
print(*problems, sep="\n")
