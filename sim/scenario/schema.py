"""The JSON Schema of a scenario file, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from sim.scenario.model import Scenario


def scenario_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12, of what a scenario file may say."""
    schema = Scenario.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "leadline scenario"}
