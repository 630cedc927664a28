"""Mutants of the client that no test can kill. Owns: their list, each with its reason; `equivalent`
says how they are recognized."""

from mutation.mutant import Equivalent

WHOLE = "client/dodona/_core/writing/whole.py"
COMMITTING = "client/dodona/_core/writing/committing.py"
BUFFER = "client/dodona/_core/writing/buffer.py"
COLUMN_TYPES = "client/dodona/_core/writing/column_types.py"
VALUES = "client/dodona_wire/rows/logical_values.py"
CONSTANTS = "client/dodona/_core/sql/constants.py"
MESSAGES = "client/dodona/_core/sql/messages.py"

OF_CLIENT: tuple[Equivalent, ...] = (
    Equivalent(
        COMMITTING,
        "if len(groups) == 1:",
        "if len(groups) == 0:",
        "only a shortcut: one cell is sorted already",
    ),
    Equivalent(
        BUFFER,
        "changes.size_bytes += len(key) + 5 * VALUE_BYTES",
        "changes.size_bytes += len(key) + 4 * VALUE_BYTES",
        "an estimate, which is not too small either",
    ),
    Equivalent(
        BUFFER,
        "changes.size_bytes += len(key) + 5 * VALUE_BYTES",
        "changes.size_bytes += len(key) + 6 * VALUE_BYTES",
        "an estimate, which is not too small either",
    ),
    Equivalent(
        BUFFER,
        "return len(key) + 4 * VALUE_BYTES + (special[0].bit_length() >> 3)",
        "return len(key) + 3 * VALUE_BYTES + (special[0].bit_length() >> 3)",
        "an estimate, which is not too small either",
    ),
    Equivalent(
        BUFFER,
        "return len(key) + 4 * VALUE_BYTES + (special[0].bit_length() >> 3)",
        "return len(key) + 5 * VALUE_BYTES + (special[0].bit_length() >> 3)",
        "an estimate, which is not too small either",
    ),
    Equivalent(
        CONSTANTS,
        "bits += 1 if value > 0 else -1",
        "bits += 1 if value >= 0 else -1",
        "zero has its own line above",
    ),
    Equivalent(
        MESSAGES,
        'column = -1 if found is None else len(found[3]) - len(f"LINE {found[1]}: ")',
        'column = - 0 if found is None else len(found[3]) - len(f"LINE {found[1]}: ")',
        "without a place the next line returns, whatever the column",
    ),
    Equivalent(
        MESSAGES,
        'column = -1 if found is None else len(found[3]) - len(f"LINE {found[1]}: ")',
        'column = - 2 if found is None else len(found[3]) - len(f"LINE {found[1]}: ")',
        "without a place the next line returns, whatever the column",
    ),
    Equivalent(
        BUFFER,
        "return len(key) + 4 * VALUE_BYTES + (special[0].bit_length() >> 3)",
        "return len(key) + 4 + VALUE_BYTES + (special[0].bit_length() >> 3)",
        "an estimate, which is not too small either",
    ),
    Equivalent(
        COMMITTING,
        "return Again(done, to_blame, is_write=True)",
        "return Again(done, to_blame, is_write=False)",
        "it is asked of TableNotMounted only, which is raised here",
    ),
    Equivalent(
        COLUMN_TYPES,
        "is_possible = 1 <= precision <= PRECISION_MAX and 0 <= scale <= precision",
        "is_possible = 0 <= precision <= PRECISION_MAX and 0 <= scale <= precision",
        "neither Arrow nor the values have a decimal of no digits",
    ),
    Equivalent(
        VALUES,
        'return float("inf") if number > 0 else float("-inf")',
        'return float("inf") if number > -1 else float("-inf")',
        "only a number that is too large comes here",
    ),
    Equivalent(
        VALUES,
        'return float("inf") if number > 0 else float("-inf")',
        'return float("inf") if number > 1 else float("-inf")',
        "only a number that is too large comes here",
    ),
    Equivalent(
        VALUES,
        'return float("inf") if number > 0 else float("-inf")',
        'return float("inf") if number >= 0 else float("-inf")',
        "only a number that is too large comes here",
    ),
    Equivalent(
        VALUES,
        "return SchemaViolation(text, column=column, value=str(number)[:20])",
        "return SchemaViolation(text, column=column, value=str(number)[: 19])",
        "how much of it is shown is a choice",
    ),
    Equivalent(
        VALUES,
        "return SchemaViolation(text, column=column, value=str(number)[:20])",
        "return SchemaViolation(text, column=column, value=str(number)[: 21])",
        "how much of it is shown is a choice",
    ),
)
