"""The keywords that the Python package declares, read without its extension module."""
import importlib.util
import pathlib
import sys
import typing

PATH = pathlib.Path(__file__).resolve().parents[3] / "python/penstock/scenario_fields.py"


def python_keywords(name):
    """Returns the keys of a TypedDict of scenario_fields.py."""
    spec = importlib.util.spec_from_file_location("scenario_fields", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where typing looks up the names in annotations
    spec.loader.exec_module(module)
    return set(typing.get_type_hints(getattr(module, name)))
