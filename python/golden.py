"""Reads the reference files of the tests."""

import glob
import json
import os
import struct

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16,
          "U8": np.uint8, "F8_E4M3": np.uint8, "F8_E5M2": np.uint8, "I32": np.int32}


def paths():
    """Returns the files of the repository or, with SPMOE_GOLDEN, those of a folder."""
    folder = os.environ.get("SPMOE_GOLDEN")
    patterns = [folder + "/*.safetensors", folder + "/*/*.safetensors"] if folder else [
        ROOT + "/mx/testdata/*.safetensors", ROOT + "/tensor/tensorcore/testdata/*.safetensors"]
    return sorted(path for pattern in patterns for path in glob.glob(pattern))


class File(dict):
    """The tensors of a safetensors file by name. types has their types in the file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        end = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:end])
        self.metadata, self.types = header.pop("__metadata__", {}), {}
        for name, info in header.items():
            self.types[name] = info["dtype"]
            if info["dtype"] in DTYPES:
                lo, hi = (end + at for at in info["data_offsets"])
                self[name] = np.frombuffer(data[lo:hi], DTYPES[info["dtype"]]).reshape(info["shape"])
