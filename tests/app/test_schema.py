"""Schemathesis reads the OpenAPI schema and tries to break its promises."""

from __future__ import annotations

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
