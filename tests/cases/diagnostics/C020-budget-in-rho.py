from pathlib import Path

from dpolicy.integrations.cohere import export_schema
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

text = Path("policy.yaml").read_text().replace("{epsilon: 3}", "{rho: 0.1}")
policy = compile_policy([Source("policy.yaml", text)])
_, problems = export_schema(policy, window=12)
print(*problems, sep="\n")
