"""Edits of the reader and of the rows, for `mutants.py`: name, file, text, other text, tests that must notice."""

# ruff: noqa: E501  (a table of edits is read line by line)

LEAK, STRICT, SPELL = (
    "tests/configs/test_no_leak.py",
    "tests/configs/test_strictness.py",
    "tests/configs/test_spellings.py",
)
TEXT, PARTS, TYPES = (
    "tests/configs/test_text_families.py",
    "tests/configs/test_parts.py",
    "tests/configs/test_transformers.py",
)

# fmt: off
EDITS = [
    ("leftovers: true asks for nothing", "models/reading/keys.py", "        return not value\n", "        return True\n", LEAK),
    ("leftovers: a half asks for nothing", "models/reading/keys.py", "isinstance(value, int | float) and value == 1)", "isinstance(value, int | float) and value <= 1)", LEAK),
    ("leftovers: what is so is refused", "models/reading/composite.py", "        if claim:\n", "        if claim is None:\n", LEAK),
    ("leftovers: a contradiction passes", "models/reading/composite.py", "elif claim is False or not is_neutral(value)", "elif not is_neutral(value)", LEAK),
    ("leftovers: slips pass", "models/reading/composite.py", " or (value and is_slip(key))", "", LEAK),
    ("leftovers: neox is interleaved", "models/reading/composite.py", "{not spec.interleaved for spec in specs}", "{spec.interleaved for spec in specs}", LEAK),
    ("keys: slips in the dictionary pass", "models/reading/keys.py", "if is_neutral(value) and not (value and near(name, known)):", "if is_neutral(value):", LEAK),
    ("keys: control characters pass", "models/reading/keys.py", "not isinstance(name, str) or not name.isprintable()", "not isinstance(name, str)", LEAK),
    ("checks: the last of two keys wins", "support/checks.py", "if len(data) < len(pairs):", "if len(data) > len(pairs):", LEAK),
    ("rope: one dictionary is enough", "models/reading/rope.py", "if values[0] != values[1]:", "if None not in values and values[0] != values[1]:", LEAK),
    ("rope: flat holds for all kinds", "models/reading/rope.py", "rope is not None and name in rope.flat]", "rope is not None]", LEAK),
    ("rope: null fills nothing", "models/reading/rope.py", " and not reading.row.fills_defaults:\n", ":\n", "tests/configs/test_no_leak.py " + TEXT),
    ("schemes: null is no word", "models/reading/schemes.py", "        truncate = False\n", "        truncate = True\n", LEAK),
    ("schemes: lengths go unsaid", "models/reading/schemes.py", "if stated and not original <= (declared or 0)", "if stated and not 0 <= (declared or 0)", LEAK),
    ("schemes: spellings of others", "models/reading/schemes.py", "word in FAMILY_SCHEMES and word not in reading.row.scheme_names", "False", SPELL),
    ("fields: an assumed base goes unsaid", "models/reading/rope.py", "        if stated:\n", "        if not stated:\n", LEAK),
    ("fields: odd widths of yarn", "models/reading/rope.py", "odd = width % 2 and not isinstance(fields[\"scaling\"], YaRN)", "odd = width % 2", TEXT),
    ("sizes: names of others are defaults", "models/reading/sizes.py", "if name not in names and data.get(name) is not None:", "if False:", SPELL),
    ("sizes: no size is too large", "models/reading/keys.py", "    if value > most:\n", "    if value > most**9:\n", "tests/configs/test_sizes.py"),
    ("layers: any kind will do", "models/reading/layers.py", "            if word not in known:\n", "            if word is None:\n", LEAK),
    ("layers: the last stays as it is", "models/reading/layers.py", "if self.last and words[-1] != self.last:", "if self.last == words[-1]:", LEAK),
    ("composite: short parts are none", "models/reading/composite.py", "(inside or is_named(key) or _is_model(key, value))", "inside", LEAK),
    ("composite: parents say nothing", "models/reading/composite.py", "                return row.parts[key]\n", "                return None\n", LEAK),
    ("configs: defaults around a part", "models/reading/composite.py", "row.read(name, {**defaults, **data}, prefix", "row.read(name, data, prefix", LEAK),
    ("numbering: slips of rates", "models/reading/numbering.py", "near(key, SIZES) and part[key] is not None", "False", LEAK),

    ("models: the local base of Gemma 3", "models/families/gemma.py", 'top=("rope_local_base_freq",)', 'top=("rope_theta",)', SPELL),
    ("models: neox reads rope_theta", "models/families/gpt.py", '"gpt_neox": TextModel("GPTNeoXConfig", rope=Rope(10_000.0, top=("rotary_emb_base",))', '"gpt_neox": TextModel("GPTNeoXConfig", rope=Rope(10_000.0)', LEAK),
    ("models: beta of Ministral", "models/families/mistral.py", "LogFloor(beta, length)}", "LogFloor(beta, length + 1)}", "tests/configs/test_temperatures.py"),
    ("models: Muse counts from the first", "models/families/muse.py", "listed = [base if (count - 1 - i) % 4 else 0 for i in range(count)]", "listed = [base if i % 4 else 0 for i in range(count)]", TEXT),
    ("models: Moonshine's encoder is lost", "models/families/speech.py", "layers=(model.layers[0],) * before + model.layers", "layers=model.layers + model.layers", "tests/configs/test_towers.py"),
    ("models: Falcon has one key head", "models/families/gpt.py", "    if not new and shared is not False:\n", "    if shared is not False:\n", "tests/configs/test_sizes.py"),
]
# fmt: on
