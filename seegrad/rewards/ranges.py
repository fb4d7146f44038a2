"""Relations of one variable as intervals: `1 < x ≤ 5`, `x > 1 and x ≤ 5` and `(1, 5]` are the same range."""

from __future__ import annotations

from seegrad.rewards.answers import Quantity, Reading, Relation, Several, Words


def range_of(reading: Reading) -> tuple[str, Several] | None:
    """(variable or "", interval), or None for what is no range of one variable."""
    match reading:
        case Several("∧", (Relation() as one, Relation() as other)):
            ranges = [range_of(one), range_of(other)]
            if any(found is None or not found[0] for found in ranges):
                return None
            (name, a), (second, b) = ranges  # type: ignore[misc]
            if isinstance(a.parts[0], Words):
                a, b = b, a
            if name != second or not isinstance(a.parts[1], Words) or not isinstance(b.parts[0], Words):
                return None
            return name, Several(a.brackets[0] + b.brackets[1], (a.parts[0], b.parts[1]))
        case Several(("()" | "(]" | "[)" | "[]"), (_, _)):
            return "", reading
        case Relation(signs, parts) if set(signs) <= {"<", "≤"} and len(parts) <= 3:
            names = [_letter(part) for part in parts]
            place = len(parts) - 2 if len(parts) == 3 or names[0] else 1
            if names[place] is None or sum(name is not None for name in names) != 1:
                return None
            low: Reading = parts[place - 1] if place else Words("-∞")
            high: Reading = parts[place + 1] if place + 1 < len(parts) else Words("∞")
            left = "[" if place and signs[place - 1] == "≤" else "("
            right = "]" if place + 1 < len(parts) and signs[place] == "≤" else ")"
            return str(names[place]), Several(left + right, (low, high))
    return None


def _letter(part: Quantity) -> str | None:
    found = part.value.monomial()
    if found is None or found[0] != 1 or len(found[1]) != 1:
        return None
    ((name, times),) = found[1]
    return str(name[1]) if name[0] == 2 and times == 1 else None
