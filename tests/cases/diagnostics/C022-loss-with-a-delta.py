from dpolicy.integrations.cohere import export_requests
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.rules.compiler import load_policy

policy = load_policy("policy.yaml")
mechanism = {"kind": "declared", "epsilon": 1, "delta": 1e-9}
body = {"mechanism": mechanism, "labels": {"stage": "final"}}
release = parse_request({"release": "r1", "mechanisms": [body]})
_, problems = export_requests(policy, [release], created=0)
print(*problems, sep="\n")
