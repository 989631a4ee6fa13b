"""Reads checkpoints of torch.distributed.checkpoint, whose files are pickles, without running what they say.

Only the classes of its own metadata are constructed, and values are read with ``weights_only``.
"""

from __future__ import annotations

import enum
import importlib
import pickle
from typing import Any

import torch

from penstock import Error

#: What metadata is made of, by module.
_CLASSES = {
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "WindowsPath", "PurePosixPath"},
    "torch": {"Size", *(name for name, value in vars(torch).items() if isinstance(value, torch.dtype))},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
        "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    },
}  # fmt: skip


def _member(of: Any, name: str) -> Any:
    """getattr, by which pickles name members of enumerations."""
    if not (isinstance(of, type) and issubclass(of, enum.Enum)):
        raise Error(f"the metadata of the checkpoint asks for the attribute {name!r} of {of!r}, which is not read")
    return of[name]


class _Metadata(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        if name not in _CLASSES.get(module, ()):
            raise Error(f"the metadata of the checkpoint has a {module}.{name}, which is not read: save it by torch.distributed.checkpoint")
        return super().find_class(module, name)


def of_folder(folder: str) -> tuple[Any, Any]:
    """Returns a reader of a folder, and the class of planners for it."""
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")  # takes a while
    metadata_of: Any = importlib.import_module("torch.distributed.checkpoint.metadata")

    class Reader(dcp.FileSystemReader):  # type: ignore[misc, name-defined]
        def read_metadata(self, *arguments: Any, **named: Any) -> Any:
            with self.fs.create_stream(self._get_metadata_path(named.get("rank")), "rb") as file:
                metadata = _Metadata(file).load()
            if getattr(metadata, "storage_meta", None) is None:
                metadata.storage_meta = metadata_of.StorageMeta()
            metadata.storage_meta.load_id = self.load_id
            return metadata

    class Planner(dcp.DefaultLoadPlanner):  # type: ignore[misc, name-defined]
        def load_bytes(self, read_item: Any, value: Any) -> None:
            name = read_item.dest_index.fqn
            try:
                self.state_dict[name] = torch.load(value, weights_only=True)
            except pickle.UnpicklingError as error:
                raise Error(f"the value '{name}' of the checkpoint is more than numbers, texts and lists, which is not read") from error

    return Reader(folder), lambda: Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
