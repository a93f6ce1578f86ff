#!/usr/bin/env bash
# A wheel in a fresh environment with one backend: its report, types, saved models,
# layers, and the first example of README.md. The package of the checkout is not used:
#     python -m build && .github/try_wheel.sh dist/*.whl jax
set -euo pipefail
wheel=$(realpath "$1") backend=$2
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r tests README.md pyproject.toml "$folder"
"${PYTHON:-python3}" -m venv "$folder/environment"
source "$folder/environment/bin/activate"
unset PYTHONPATH
cd "$folder"
export KERAS_BACKEND=$backend
pip install --quiet "$wheel[$backend]" pytest mypy
python -m kerasvit
printf '%s\n' 'import kerasvit' 'reveal_type(kerasvit.classify)' > consumer.py
mypy --config-file= --follow-imports=silent consumer.py | tee types.txt
grep -q "list\[tuple\[str, float\]\]" types.txt
# Tests that need no other package; most others read images by TensorFlow.
python -m pytest -q -m "not slow and not long" \
    tests/golden/test_saved.py tests/layers tests/loading tests/quantization
pip install --quiet "$wheel[data]"  # TensorFlow reads images, whatever the backend
python -m pytest -q -m "" -k first_lines tests/fine_tuning/test_pages.py
