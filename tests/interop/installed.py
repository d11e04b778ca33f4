"""Checks which peers are installed, and marks that skip a test with the reason if one is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.examples.program import ROOT
from tests.interop import rabbitmq

NODE_MODULES = ROOT / "benchmarks" / "node" / "node_modules"
CPP_PROGRAMS = ROOT / ".interop" / "bin"
GO_AMQP = CPP_PROGRAMS / "go_amqp.test"
PYTHON_PACKAGES = ROOT / ".interop" / "python"
AZURE = ROOT / ".interop" / "azure"
GREENLETS = ROOT / ".interop" / "greenlets"
# Debian's packages work only with Debian's Python.
SYSTEM_PYTHON = Path("/usr/bin/python3")
_UAMQP = Path("/usr/lib/python3/dist-packages/uamqp")


def _need(name: str, *, found: bool) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not found, reason=f"{name} is not installed: make test-interop installs it")


needs_rabbitmq = _need("RabbitMQ", found=rabbitmq.installed())
needs_rhea = _need("rhea", found=(NODE_MODULES / "rhea").is_dir() and shutil.which("node") is not None)
needs_cpp = _need("proton C++ with its examples", found=(CPP_PROGRAMS / "simple_send").exists())
needs_uamqp = _need("uAMQP", found=_UAMQP.is_dir() and SYSTEM_PYTHON.exists())
needs_gevent = _need("gevent", found=(GREENLETS / "gevent").is_dir())
needs_eventlet = _need("eventlet", found=(GREENLETS / "eventlet").is_dir())
needs_go_amqp = _need("go-amqp", found=GO_AMQP.exists())
needs_azure = _need("azure-servicebus", found=(AZURE / "azure" / "servicebus").is_dir())
needs_rabbitmq_client = _need(
    "rabbitmq-amqp-python-client", found=(PYTHON_PACKAGES / "rabbitmq_amqp_python_client").is_dir()
)
