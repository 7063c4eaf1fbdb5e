from pathlib import Path

attributes = "".join(f"    a{n}: {{risk: low}}\n" for n in range(500))
text = f"""\
dpolicy: 1
accounting: {{delta: 1e-7}}
schema:
  attributes:
{attributes}policies:
  - {{name: p, kind: attribute, unit: user, budgets: {{low: {{epsilon: 1}}}}}}
"""
Path("policy.yaml").write_text(text)
