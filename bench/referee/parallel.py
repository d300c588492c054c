"""Steps of two ranks, clean and with mistakes of parallel training, for `launcher check`: replicas (dp), FSDP2 and
expert parallelism, on CPUs through gloo.

    python3 bench/referee/parallel.py --launcher ./launcher --out results.jsonl [--keep DIR]
"""

import argparse
import json
import os
import shutil
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
import transformers

import plant
from plant import step

RANKS = 2


class Gather(torch.autograd.Function):
    """Rows of all ranks, one after the other. Backward sums and takes this rank's rows."""

    @staticmethod
    def forward(ctx, x):
        ctx.rows = len(x)
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g[dist.get_rank() * ctx.rows : (dist.get_rank() + 1) * ctx.rows]


class Reduce(torch.autograd.Function):
    """The sum over ranks, of which this rank keeps its rows. Backward gathers."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        rows = len(x) // RANKS
        return x[dist.get_rank() * rows : (dist.get_rank() + 1) * rows].clone()

    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g) for _ in range(RANKS)]
        dist.all_gather(parts, g.contiguous())
        return torch.cat(parts)


def expert_parallel(module):
    """Keeps half of the experts, and exchanges tokens by gathering all."""
    local = module.num_experts // RANKS
    first = dist.get_rank() * local
    for name in ("gate_up_proj", "down_proj"):
        setattr(module, name, torch.nn.Parameter(getattr(module, name).detach()[first : first + local].clone()))

    def forward(x, indices, weights):
        x, weights = Gather.apply(x), Gather.apply(weights)
        parts = [torch.empty_like(indices) for _ in range(RANKS)]
        dist.all_gather(parts, indices.contiguous())
        indices = torch.cat(parts)
        out = torch.zeros_like(x)
        for e in range(local):
            token, place = torch.where(indices == first + e)
            gate, up = F.linear(x[token], module.gate_up_proj[e]).chunk(2, -1)
            y = F.linear(F.silu(gate) * up, module.down_proj[e]) * weights[token, place, None]
            out = out.index_add(0, token, y.to(out.dtype))
        return Reduce.apply(out)

    module.forward = forward


def reduce_gradients(model, kind, mistake):
    """Means over ranks, as the kind of parallelism asks for, but for the mistake."""
    for name, p in model.named_parameters():
        if p.grad is None or kind == "fsdp":
            continue
        shard = kind == "ep" and ".experts." in name
        here = "layers.2.mlp" in name
        if shard:
            p.grad *= 1 if mistake == "experts_not_divided" else 1 / RANKS
            continue
        if mistake == "router_not_reduced" and name.endswith("mlp.gate.weight") and here:
            continue
        if mistake == "norms_not_reduced" and "norm" in name:
            continue
        dist.all_reduce(p.grad)
        if not (mistake == "summed_not_averaged" and here):
            p.grad /= RANKS
        if mistake == "reduced_twice" and "self_attn" in name and "layers.1" in name:
            dist.all_reduce(p.grad)


CASES = [
    ("dp", None, None, None), ("fsdp", None, None, None), ("ep", None, None, None),
    ("dp", "router_not_reduced", "gate", "reduc|rank|dp"), ("dp", "norms_not_reduced", "norm", "reduc|rank|dp"),
    ("dp", "summed_not_averaged", "mlp", "2.0|twice|factor|sum"), ("dp", "reduced_twice", "self_attn", "2.0|twice|factor"),
    ("ep", "experts_not_divided", "experts|mlp", "2.0|ep|factor"), ("ep", "router_not_reduced", "gate", "reduc|rank|ep"),
]  # fmt: skip


def step_of(rank, family, dtype, kind, mistake, folder):
    config = plant.config_of(family, 64)
    config._attn_implementation, config._experts_implementation = "eager", "eager"
    model = plant.randomize(plant.FAMILIES[family][1](config).float(), 5).to(dtype)
    ids = torch.randint(0, 512, (4, 32), generator=torch.Generator().manual_seed(7))
    mine = ids[rank * 2 : rank * 2 + 2]
    placements = {}
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if kind == "ep":
        for name, module in model.named_modules():
            if name.endswith("mlp.experts"):
                expert_parallel(module)
                placements |= {f"{name}.{p}": ["Shard(0)"] for p, _ in module.named_parameters()}
    axis = "ep" if kind == "ep" else "dp"
    recorder = step.Recorder(model, folder, config=config, mesh={axis: RANKS}, coordinate={axis: rank})
    loss = model(input_ids=mine, labels=mine, use_cache=False).loss
    loss.backward()
    reduce_gradients(model, kind, mistake)
    recorder.batches[0]["labels"] = mine
    recorder.save(loss=loss, positions=range(rank * 64, rank * 64 + 64), placements=placements, framework=f"transformers {transformers.__version__}")


def work(rank, port, args):
    torch.set_num_threads(4)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    for family, dtype in (("v3", torch.float32), ("qwen3", torch.bfloat16)):
        for kind, mistake, where, cause in CASES:
            label = f"parallel-{family}-{str(dtype)[6:]}-{kind}" + (f"+{mistake}" if mistake else "")
            folder = os.path.join(args.keep or tempfile.gettempdir(), label)
            if rank == 0:
                shutil.rmtree(folder, ignore_errors=True)
            dist.barrier()
            step_of(rank, family, dtype, kind, mistake, folder)
            dist.barrier()
            if rank > 0:
                continue
            row = {"case": label, "bug": mistake, "where": where, "cause": cause}
            if args.launcher:
                row.update(plant.judge(args.launcher, folder))
            print(label, row.get("exit"), row.get("seconds"), flush=True)
            with open(args.out, "a") as out:
                out.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher")
    parser.add_argument("--out", default="results.jsonl")
    parser.add_argument("--keep")
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (port, args), nprocs=RANKS)


if __name__ == "__main__":
    main()
