"""Schemathesis reads the OpenAPI schema and tries to break its promises."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser  # with the browser tests, because it is no part of the test extra


def test_the_server_keeps_what_its_schema_promises():
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from servers import serving

    with serving() as address:
        config = schemathesis.Config.from_path(Path(__file__).with_name("schemathesis.toml"))
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json", config=config)
        assert {op.ok().path for op in schema.get_all_operations()} >= {"/api/solve", "/api/trajectory", "/api/race"}
        for result in schema.get_all_operations():
            operation = result.ok()

            @given(case=operation.as_strategy())
            @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck),
                      phases=[Phase.explicit, Phase.generate])  # fmt: skip
            def check(case):
                case.call_and_validate()

            check()


def test_the_schema_knows_which_settings_a_rule_takes():
    """An independent validator and the server refuse the same requests."""
    import jsonschema_rs
    from fastapi.testclient import TestClient

    from letgo.app.server import create_app

    puzzle = {"model": "sudoku-mini", "puzzle": "1234341221434321", "steps": 1, "tries": 1}
    rules = ("ddpm", "tweedie", "heun", "em", "em-decay", "tweedy")
    with TestClient(create_app(), base_url="http://127.0.0.1") as client:
        schema = client.get("/openapi.json").json()
        asked = {"$ref": "#/components/schemas/SolveRequest", "components": schema["components"]}
        validator = jsonschema_rs.validator_for(asked)
        for rule, sigma, tau_start, variance in product((None, *rules), (None, 0.1), (None, 0.5), (1.0, 2.0)):
            settings = {"rule": rule, "sigma": sigma, "tau_start": tau_start, "variance": variance}
            body = puzzle | {name: value for name, value in settings.items() if value is not None}
            answer = client.post("/api/solve", json=body)
            if "none given and none stored" not in answer.text:  # what is stored with a model is not the schema's
                assert validator.is_valid(body) == (answer.status_code == 200), (body, answer.text)
