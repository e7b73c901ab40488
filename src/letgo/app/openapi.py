"""What the API's schema says of rules: their names, and which settings each takes."""

from __future__ import annotations

from typing import Any


def with_rules(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema, in which a setting that a rule does not take is invalid. Imports torch."""
    from letgo.samplers import RULES

    parts = schema["components"]["schemas"]
    for part in (parts["RuleSettings"], parts["SolveRequest"], parts["SureRequest"]):
        _name(part["properties"]["rule"], [*RULES])
        conditions = [
            _only(setting, {"type": "number"}, [rule for rule, kind in RULES.items() if setting in kind.takes], True)
            for setting in ("sigma", "tau_start")
        ]
        tempered = [rule for rule, kind in RULES.items() if kind.tempers]
        led = [rule for rule, kind in RULES.items() if "ahead" in kind.settings]
        conditions.append(_only("variance", {"not": {"const": 1}}, tempered, False))
        for setting in ("order_noise", "temperature", "sigma_ahead"):
            takers = [rule for rule, kind in RULES.items() if setting in kind.may_take]
            conditions.append(_only(setting, {"type": "number"}, takers, False))
        forgetful = [rule for rule, kind in RULES.items() if kind.forgets]
        conditions += [_only(f"t_{end}", {"type": "number"}, forgetful, False) for end in ("max", "min")]
        part["allOf"] = [*conditions, _only("ahead", {"not": {"const": 0}}, led, False)]
    for part in (parts["TrajectoryRequest"], parts["RaceRequest"]):
        for items in (choice.get("items", {}) for choice in part["properties"]["rules"]["anyOf"]):
            _name(items, [*RULES])
    return schema


def _name(part: dict[str, Any], rules: list[str]) -> None:
    """Require one of these names where the part is text, or one of its choices is."""
    for choice in part.get("anyOf", [part]):
        if choice.get("type") == "string":
            choice["enum"] = rules


def _only(setting: str, value: dict[str, Any], rules: list[str], needed: bool) -> dict[str, Any]:
    """Require one of these rules if the setting has such a value; where it is not needed it may be left out."""
    choices = {"enum": rules if needed else [*rules, None]}
    then = {"properties": {"rule": choices}, **({"required": ["rule"]} if needed else {})}
    return {"if": {"properties": {setting: value}, "required": [setting]}, "then": then}
