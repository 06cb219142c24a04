# Sourced by ./quickstart and ./check: makes .venv from the project's own files, once.
# Versions come from constraints.txt; nothing outside this folder and the pip cache is touched.
# The interpreter itself is taken, not a link to it: in an active .venv that is made anew, the link goes with it.
python=""
for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$candidate" ] || continue
    python=$("$candidate" -c 'import sys; print(sys._base_executable if sys.version_info >= (3, 11) else "")' 2>/dev/null) || python=""
    [ -z "$python" ] || break
done
[ -n "$python" ] || { echo "Python 3.11 or newer is needed and was not found (set PYTHON=/path/to/python)" >&2; exit 2; }
venv=.venv
wanted=$(cat constraints.txt pyproject.toml setup-env.sh | cksum)
if [ "$(cat $venv/.made-from 2>/dev/null)" != "$wanted" ]; then
    echo "making $venv (a few minutes, once)"
    rm -rf $venv
    "$python" -m venv $venv
    # The CPU build of torch where the index offers one: the default build brings gigabytes of CUDA.
    $venv/bin/python -m pip install --quiet --disable-pip-version-check \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt -e '.[dev]'
    echo "$wanted" > $venv/.made-from
fi
export PATH="$PWD/$venv/bin:$PATH"
