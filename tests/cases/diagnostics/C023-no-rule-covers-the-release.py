from pathlib import Path

from dpolicy.integrations.cohere import export_requests
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

text = Path("policy.yaml").read_text().replace("when: always", "when: '\"zip\" in attributes'")
policy = compile_policy([Source("policy.yaml", text)])
mechanism = {"kind": "gaussian", "sigma": 10}
body = {"mechanism": mechanism, "labels": {"stage": "final"}}
release = parse_request({"release": "r1", "mechanisms": [body]})
_, problems = export_requests(policy, [release], created=0)
print(*problems, sep="\n")
