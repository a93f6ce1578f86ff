"""Import directions and other rules of the package."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.once import on_last_backend

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kerasvit"
BACKENDS = {"jax", "jaxlib", "openvino", "tensorflow", "torch"}
# Room → rooms of the package it may import from; of a file with an entry of its own,
# these alone.
MAY_SEE = {  # and `arguments` and `types`, which every room may import
    "arguments": set(),
    "types": set(),
    "layers": {"layers", "ops"},
    "ops": {"backend"},  # the only door from layers to backends
    "models": {
        *("models", "layers", "preprocessing", "patterns", "records", "adapters"),
        "quantization",
    },
    "models/variant.py": {  # the bridge between models and weights
        *("models", "preprocessing", "loading", "hub"),
    },
    "loading": {
        *("loading", "hub", "checkpoints", "layers", "preprocessing", "backend"),
        *("adapters", "records", "quantization", "loaded_card"),
    },
    "adapters": {"layers", "backend"},
    "loaded_card": {"adapters", "hub"},
    "features": {
        *("models", "layers", "records", "backend", "adapters", "quantization"),
        "preprocessing",
    },
    "quantization": {"quantization", "backend", "layers"},
    "lora": {"adapters", "checkpoints", "hub", "loading", "models", "backend"},
    "checkpoints": {"checkpoints"},
    "hub": {"hub", "checkpoints", "patterns", "version"},
    "training": {"training", "backend", "patterns", "layers", "records"},
    "rho_search": {"rho_search", "training", "backend"},
    "fine_tuning": {
        *("fine_tuning", "training", "evaluation", "preprocessing", "records"),
        "backend",
    },
    "data": {"data", "preprocessing", "installed"},
    "evaluation": {"evaluation"},
    "inspection": {"inspection", "backend", "records", "patterns"},
    "backend": {"backend"},
    "version": set(),
    "__main__": {"backend", "hub", "installed"},
    "installed": {"version"},
    "patterns": set(),
    "records": set(),
    "preprocessing": {"preprocessing", "layers"},
    "calibration": {"checkpoints", "evaluation", "fine_tuning", "hub", "records"},
    "prediction": {
        *("preprocessing", "records", "backend", "calibration", "evaluation"),
    },
    "saving": {
        "backend",
        *("hub", "preprocessing", "records", "adapters", "lora", "checkpoints"),
        *("quantization", "loaded_card"),
    },
    "pretrained": {
        *("models", "layers", "hub", "checkpoints", "preprocessing", "saving"),
        *("loading", "backend", "adapters", "records", "quantization"),
    },
}
FILE_LINES, BODY_LINES, ARGUMENTS = 500, 50, 8
# Functions with more arguments, all but `ARGUMENTS` of them keyword-only and optional.
BUDGETS = {
    # Builders: what differs between five code bases' checkpoints of one architecture.
    "vit.VisionTransformer": 28,
    "beit.BEiTTransformer": 22,
    "hybrid.HybridVisionTransformer": 24,
    "rotary_vit.RotaryVisionTransformer": 32,
    "deit.DistilledVisionTransformer": 18,
    "pit.PoolingVisionTransformer": 18,
    "swin.SwinTransformer": 16,
    "alternet.AlterNet": 16,
    "vit_ablation.VisionTransformerAblation": 16,
    "mixer.MLPMixer": 14,
    "resnext.ResNeXt": 13,
    "alternet.PreActResNet": 12,
    "bit.BigTransfer": 11,
    # What Vision Transformers, distilled DeiTs and hybrids choose in their blocks.
    "encoder.encoder": 12,
    # What may differ from the weights; further arguments are the builder's.
    "variant.__call__": 10,
    # Fields of the card, and how the Hub is accessed.
    "saving.push_to_hub": 18,
    "saving.save_pretrained": 12,
    # What decides about a batch.
    "training_batches.training_batches": 9,
    # Numbers of the algorithms, each with a default.
    "search.suggest_rho": 10,
    "lanczos.eigenpairs": 10,
    "hessian.largest_eigenvalue": 9,
    "gsam.__init__": 9,
}
# Methods of PyTorch's tensors that neither NumPy nor a module has under this name.
TENSOR_METHODS = {
    *("addmm", "addbmm", "baddbmm", "bmm", "contiguous", "detach", "expand_as"),
    *("flatten_", "gather", "masked_fill", "mm", "permute", "scatter", "unsqueeze"),
    *("unflatten", "view", "view_as", "mul_", "add_", "sub_", "div_", "copy_"),
}
FILES = sorted(PACKAGE.rglob("*.py"))
PRIVATE = "backend/keras_private.py"
# Files with a class that overrides a private method of a layer or optimizer of Keras.
OVERRIDING = {
    "backend/layer_rates.py",
    "backend/torch/optimizers.py",
    "backend/tensorflow/optimizers.py",
    "backend/torch/direct_calls.py",
}
NOT_OF_KERAS = {"_asdict", "_replace"}  # of named tuples
# `kernel` of Keras's Dense has LoRA's product in it.
BELOW_A_PROPERTY = {"layers/dense.py": {"_kernel"}}
# What the folders beside the package may import from each other, and why.
OUTSIDE = {
    # The certificate uses the golden cases of the tests.
    "weights/parity.py": {"tests"},
    # The certificate and the benchmarks import timm in the same way.
    "weights/timm_reference.py": {"recipes"},
}


def room(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports(path):
    """Absolute dotted names that a file imports, relative ones resolved."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parent, *([node.module] if node.module else [])])
            if module == "kerasvit":
                yield from (f"kerasvit.{alias.name}" for alias in node.names)
            else:
                yield module


def files(*rooms):
    return [path for path in FILES if room(path) in rooms]


def named(path):
    return path.relative_to(PACKAGE).as_posix()


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def _own_names():
    """Private names that files of the package define."""
    for path in FILES:
        if named(path) == PRIVATE or named(path) in OVERRIDING:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    yield node.attr


OURS = {name for name in _own_names() if _is_private(name)}
KERAS_OBJECTS = {
    name
    for each in (
        *(keras.Model, keras.Sequential, keras.layers.Dense, keras.losses.Loss),
        *(keras.optimizers.AdamW, keras.optimizers.LossScaleOptimizer),
        *(keras.metrics.Mean, keras.Variable, keras.StatelessScope),
    )
    for name in dir(each)
    if _is_private(name)
}


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_package_imports_only_packages_below_it(path):
    if path == PACKAGE / "__init__.py":
        return
    allowed = {"arguments", "types"} | MAY_SEE.get(named(path), MAY_SEE[room(path)])
    for name in imports(path):
        first, *rest = name.split(".")
        assert first not in ("weights", "recipes", "tests"), name
        if first == "kerasvit":
            assert rest and rest[0] in allowed, f"{named(path)} imports {name}"


@pytest.mark.slow
@on_last_backend
def test_scripts_import_only_the_package_or_listed_folders():
    found = {}
    for path in [*(ROOT / "weights").rglob("*.py"), *(ROOT / "recipes").rglob("*.py")]:
        folder = path.relative_to(ROOT).parts[0]
        seen = {name.split(".")[0] for name in imports(path)} - {folder}
        if seen := seen & {"weights", "recipes", "tests"}:
            found[path.relative_to(ROOT).as_posix()] = seen
    assert found == OUTSIDE


@pytest.mark.slow
@on_last_backend
def test_recipes_import_public_names():
    """Those of `kerasvit` and of its rooms."""
    seen = {name for path in (ROOT / "recipes").rglob("*.py") for name in imports(path)}
    ours = {name for name in seen if name.startswith("kerasvit.")}
    inner = {n for n in ours if n.count(".") > 1 or n == "kerasvit.backend"}
    assert not inner


@on_last_backend
@pytest.mark.parametrize("path", files("models"), ids=named)
def test_an_architecture_imports_no_other_except_in_compositions(path):
    if path.stem in ("__init__", "hybrid", "deit"):
        return
    shared = {
        *("builder", "checks", "encoder", "image_model", "stages", "variant"),
    }
    for name in imports(path):
        if name.startswith("kerasvit.models."):
            assert name.split(".")[2] in shared, name


@on_last_backend
@pytest.mark.parametrize("path", files("layers"), ids=named)
def test_layers_are_written_in_keras_and_numpy_only(path):
    allowed = {"keras", "numpy", "kerasvit", *sys.stdlib_module_names}
    assert {name.split(".")[0] for name in imports(path)} <= allowed


@on_last_backend
@pytest.mark.parametrize("path", files("layers"), ids=named)
def test_layers_ask_for_no_backend_and_no_device(path):
    """`kerasvit.ops` decides by them."""
    asked = {"backend", "list_devices", "device", "data_format", "image_data_format"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in asked, node.lineno


@on_last_backend
@pytest.mark.parametrize("path", files("layers"), ids=named)
def test_layers_call_no_methods_of_tensors(path):
    """Only some backends have them; `keras.ops` has a function for each."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in TENSOR_METHODS, node.lineno


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_backends_are_imported_only_in_the_backend_folder(path):
    inside = room(path) == "backend"
    foreign = BACKENDS - ({"tensorflow"} if room(path) == "data" else set())  # tf.data
    for name in imports(path):
        private = name == "keras.src" or name.startswith("keras.src.")
        assert inside or not (private or name.split(".")[0] in foreign), name


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_private_names_of_keras_stand_in_one_file(path):
    """A private attribute is one that our own files define, or is not of Keras."""
    name = named(path)
    if name == PRIVATE or name in OVERRIDING:
        return
    allowed = OURS | NOT_OF_KERAS | BELOW_A_PROPERTY.get(name, set())
    assert not [each for each in imports(path) if each.startswith("keras.src")]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            theirs = node.attr in KERAS_OBJECTS or node.attr not in allowed
            of_backend = ast.unparse(node.value).split(".")[0] in BACKENDS
            assert of_backend or not theirs, f"{name}:{node.lineno} {node.attr}"
        if isinstance(node, ast.FunctionDef):
            assert node.name not in KERAS_OBJECTS, f"{name}:{node.lineno} {node.name}"


@on_last_backend
def test_few_files_override_private_methods_of_keras():
    assert len(OVERRIDING) <= 4
    for name in OVERRIDING:
        assert (PACKAGE / name).is_file()


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_is_unpickled(path):
    modules = {name.split(".")[0] for name in imports(path)}
    assert not modules & {"pickle", "dill", "cloudpickle", "joblib", "shelve"}
    assert "allow_pickle=True" not in path.read_text(encoding="utf-8")


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_modules_have_no_generic_names(path):
    assert path.stem not in {"utils", "common", "helpers", "misc", "factory", "base"}


@on_last_backend
def test_the_recipes_are_the_scripts_of_their_folder():
    scripts = {path.stem for path in (ROOT / "recipes").glob("*.py")} - {"__init__"}
    expected = {"finetune", "pretrain", "evaluate", "inspection", "segmentation"}
    expected |= {"export", "reproduce", "serve"}
    assert scripts == expected  # what they share lies in folders


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_print_and_no_assert(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.Assert), node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", node.lineno


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_is_not_too_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_function_has_a_short_body_and_few_arguments(path):
    """The body without its docstring; public functions may have keyword-only extras."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) else node.body
        lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
        assert lines <= BODY_LINES, f"{node.name} has a body of {lines} lines"
        given = [*node.args.posonlyargs, *node.args.args]
        given = [each.arg for each in given if each.arg not in ("self", "cls")]
        extra = node.args.kwonlyargs
        required = sum(default is None for default in node.args.kw_defaults)
        assert len(given) + required <= ARGUMENTS, node.name
        budget = BUDGETS.get(f"{path.stem}.{node.name}", ARGUMENTS)
        assert len(given) + len(extra) <= budget, node.name


@pytest.mark.slow
def test_import_is_quiet_and_brings_in_keras_and_its_backend_only():
    backend = keras.backend.backend()
    code = (
        "import os, sys, keras\n"
        "before, environment = set(sys.modules), dict(os.environ)\n"
        "import kerasvit\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "assert dict(os.environ) == environment\n"
        "known = {'kerasvit', 'keras', 'PIL', *sys.stdlib_module_names}\n"
        "assert new <= known, new - known\n"
        f"others = {{'tensorflow', 'torch'}} - {{{backend!r}}}\n"
        "assert not others & set(sys.modules), others & set(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error:::kerasvit", "-c", code],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""


@on_last_backend
def test_every_public_name_is_imported_by_its_own_line_or_stands_in_all():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names = [(alias.name, alias.asname) for alias in node.names]
            assert names == [("*", None)] or names == [(names[0][0], names[0][0])]


@on_last_backend
def test_no_import_needs_a_module_that_windows_lacks():
    """At the top of a file; functions may import them."""
    missing = {"fcntl", "grp", "pwd", "resource", "termios"}
    for folder in ("kerasvit", "recipes", "weights", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.Import):
                    assert not missing & {alias.name for alias in node.names}, path
                if isinstance(node, ast.ImportFrom):
                    assert node.module not in missing, path


@on_last_backend
def test_text_files_have_an_encoding():
    """By default, Windows takes another than UTF-8."""
    given = {"read_text": 1, "write_text": 2}  # arguments up to the encoding
    for folder in ("kerasvit", "recipes", "weights", ".github/site"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.Call) or "encoding" in ast.unparse(node):
                    continue
                name = getattr(node.func, "attr", getattr(node.func, "id", None))
                modes = [x.value for x in node.args if isinstance(x, ast.Constant)]
                opens = name == "open" and (modes or not node.args)
                assert len(node.args) >= given.get(name, 0), (path, node.lineno)
                assert not opens or "b" in str(modes[-1:]), (path, node.lineno)


@on_last_backend
def test_paths_of_unknown_users_are_paths_that_do_not_exist():
    """`Path.expanduser` raises a `RuntimeError` for "~name" without such a user."""
    for folder in ("kerasvit", "recipes", "weights"):
        for path in (ROOT / folder).rglob("*.py"):
            assert ".expanduser()" not in path.read_text("utf-8"), path


@on_last_backend
def test_every_room_has_quick_tests():
    for room in {path.parent for path in Path(__file__).parent.rglob("test_*.py")}:
        texts = (path.read_text() for path in room.glob("test_*.py"))
        assert any("pytest.mark.slow" not in text.split("def ")[0] for text in texts)
