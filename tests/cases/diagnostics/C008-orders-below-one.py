import json
from pathlib import Path

from dpolicy.integrations.cohere import read_schema

schema = json.loads(Path("schema.json").read_text())
schema["accounting_type"]["Rdp"]["eps_values"] = [0.1, 0.4]
_, problems = read_schema(schema)
print(*problems, sep="\n")
