"""Writes files as sglang's dumper does, with torch.save: python3 bench/referee/dumper.py FOLDER. Their copy in launcher/step/testdata/dumper is a test of the reader."""

import os
import sys

import numpy
import torch


def meta(name, index, **others):
    parallel = {"tp_rank": 1, "tp_size": 2, "groups": {"dp": (0, 1, 2, 3), "empty": (), 0: None}, "flags": [True, False, -1, 2**40]}
    facts = {"step": 0, "rank": 3, "name": name, "dump_index": index, "layer_id": None, "recompute_status": "disabled", "dims": None, "world_size": 8, "time": 1.5}
    return {**facts, "megatron_parallel_info": parallel, "sglang_parallel_info": {}, **others}


def main(folder):
    os.makedirs(folder, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count = lambda dtype, *shape: torch.arange(torch.Size(shape).numel(), device=device).to(dtype).view(shape)
    hidden = count(torch.bfloat16, 2, 3, 8)
    weight = torch.nn.Parameter(count(torch.float32, 7, 8)[1:, :])  # of a storage with more, from an offset on
    dumps = [
        ("input_ids", count(torch.int64, 2, 3), {}),
        ("non_intrusive__model.layers.0.self_attn.inputs.hidden_states", hidden, {"shape": hidden.shape, "dtype": hidden.dtype, "device": hidden.device}),
        ("grad__non_intrusive__model.layers.0.mlp.output.0", count(torch.float32, 8, 6).t(), {"dims": "t h"}),  # not contiguous
        ("param__model.layers.0.mlp.gate_proj.weight", weight, {}),
        ("non_intrusive__model.layers.0.mlp.inputs.hidden_states", hidden, {"scale": numpy.float64(0.5)}),  # refused
        ("lengths", (1, 2), {}),  # no tensor
    ]
    for index, (name, value, others) in enumerate(dumps, 1):
        path = f"step=0___rank=3___dump_index={index}___name={name}.pt"
        torch.save({"value": value, "meta": meta(name, index, **others)}, os.path.join(folder, path))


if __name__ == "__main__":
    main(sys.argv[1])
