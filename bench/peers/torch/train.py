"""Training steps of a model in PyTorch, on the CPU: what `launcher bench train` is compared with.

The model's shape comes from the launcher, on standard input:

    launcher inspect small --seq 512 --batch 8 --json | python3 train.py --threads 2

Prints one JSON object per line, with name and value, as `bench train --json` does. With --options it prints the choices
that this version of PyTorch has, the first of each being the default; --set picks others.
"""
import argparse
import json
import math
import os
import resource
import statistics
import sys
import time


# The C library maps and clears the memory of large tensors again in each step, unless it may keep all of it, with huge
# pages, in one heap.
MALLOC = {
    "heap": {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_ARENA_MAX": "1",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    },
    "mmap": {},
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--warm", type=int, default=1, help="steps before those that count")
    p.add_argument("--steps", type=int, default=3, help="steps, of which the median counts")
    p.add_argument("--set", default="", metavar="NAME=VALUE,...", help="choices that differ from the defaults")
    p.add_argument("--options", action="store_true", help="print the choices as JSON")
    p.add_argument("--profile", action="store_true", help="print the time per operator of one step to standard error")
    return p.parse_args()


def restart(o):
    """Starts this program again if its choices need other environment variables: libraries read them when they load."""
    wanted = dict(MALLOC[o.malloc])
    if o.simd == "avx512":  # PyTorch 1 uses AVX2 unless it is told otherwise
        wanted["ATEN_CPU_CAPABILITY"] = "avx512"
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def limit_memory():
    """Lets an allocation fail that the machine has no memory for, before it swaps or kills."""
    with open("/proc/meminfo") as f:
        available = next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))
    resource.setrlimit(resource.RLIMIT_DATA, (available * 1024, available * 1024))


def has_avx512():
    with open("/proc/cpuinfo") as f:
        return "avx512bw" in f.read()


def options(torch):
    """Choices by name, in the order in which they are worth trying, the default first."""
    new = hasattr(torch.nn.functional, "scaled_dot_product_attention")
    grouped = hasattr(torch.nn.functional, "grouped_mm") or hasattr(torch, "_grouped_mm")
    version = tuple(int(n) for n in torch.__version__.split(".")[:2])
    return {
        "weights": ["master", "autocast"],
        "attention": (["sdpa"] if new else []) + ["256", "128", "512"],
        "experts": ["loop"] + (["grouped"] if grouped else []),
        "optimizer": ["pieces"] + (["fused"] if version >= (2, 4) else []),
        "loss": ["64", "256"],
        "malloc": list(MALLOC),
        "simd": ["default"] if new or not has_avx512() else ["avx512", "default"],
        "compile": ["no"] + (["yes"] if hasattr(torch, "compile") else []),
    }


def choose(torch, text):
    known = options(torch)
    chosen = {name: values[0] for name, values in known.items()}
    for name, value in (pair.split("=") for pair in text.split(",") if pair):
        if name not in known or value not in known[name] and name not in ("attention", "loss"):
            sys.exit(f"--set {name}={value}: this PyTorch has {known}")
        chosen[name] = value
    o = argparse.Namespace(**chosen)
    o.loss = int(o.loss)
    o.activations = torch.bfloat16
    o.dtype = torch.bfloat16 if o.weights == "master" else torch.float32
    return o, ",".join(f"{name}={value}" for name, value in chosen.items())


class FusedAdamW:
    """PyTorch's own AdamW in one pass over FP32 masters of BF16 parameters; others are their own."""

    def __init__(self, torch, parameters, lr):
        self.torch, self.all = torch, [(p, p if p.dtype == torch.float32 else p.detach().float()) for p in parameters]
        self.optimizer = torch.optim.AdamW([m for _, m in self.all], lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(self):
        for p, master in self.all:
            if p is not master:
                master.grad, p.grad = p.grad.float(), None
        masters = [m for _, m in self.all]
        self.torch.nn.utils.clip_grad_norm_(masters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with self.torch.no_grad():
            for p, master in self.all:
                if p is not master:
                    p.copy_(master)


class Training:
    def __init__(self, torch, shape, o, lr=1e-3):
        from kernels import AdamW
        from model import Experts, Model

        self.torch = torch
        self.model = Model(shape["model"], o, shape["seq"])
        parameters = list(self.model.parameters())
        count = sum(p.numel() for p in parameters)
        if count != shape["parameters"]["total"]:
            sys.exit(f"this model has {count} parameters, the launcher's {shape['parameters']['total']}")
        self.run = torch.compile(self.model) if o.compile == "yes" else self.model
        self.optimizer = FusedAdamW(torch, parameters, lr) if o.optimizer == "fused" else AdamW(parameters, lr)
        self.experts = [m for m in self.model.modules() if isinstance(m, Experts)]

    def loss(self, rows):
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16):
            return self.model.loss(self.run(rows[:, :-1]), rows[:, 1:])

    def step(self, rows):
        loss = self.loss(rows)
        loss.backward()
        self.optimizer.step()
        for e in self.experts:
            e.balance()
        return float(loss.detach())


def sane(losses, vocab):
    """Random tokens cost about log(vocab) at first, and less once the same ones were seen."""
    return abs(losses[0] - math.log(vocab)) < 0.1 * math.log(vocab) and losses[-1] < losses[0]


def measure(torch, a, o, shape):
    torch.manual_seed(1)
    training = Training(torch, shape, o)
    rows = torch.randint(shape["model"]["vocab_size"], (shape["batch"], shape["seq"] + 1))
    took, losses = [], []
    for _ in range(a.warm + a.steps):
        begin = time.perf_counter()
        losses.append(training.step(rows))
        took.append(time.perf_counter() - begin)
    if not sane(losses, shape["model"]["vocab_size"]):
        sys.exit(f"the losses {losses} are not those of a training run")
    if a.profile:
        with torch.profiler.profile() as seen:
            training.step(rows)
        print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=25), file=sys.stderr)
    return shape["batch"] * shape["seq"] / statistics.median(took[a.warm :]), losses


def main():
    a = arguments()
    import torch

    torch.set_num_threads(a.threads)
    if a.options:
        print(json.dumps([{"name": name, "values": values} for name, values in options(torch).items()]))
        return
    o, text = choose(torch, a.set)
    restart(o)
    shape = json.load(sys.stdin)
    limit_memory()
    rate, losses = measure(torch, a, o, shape)
    for name, value in {
        "torch_bf16_tokens_per_s": rate,
        "torch_bf16_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch_first_loss": losses[0],
        "torch_last_loss": losses[-1],
    }.items():
        print(json.dumps({"name": name, "value": value, "options": text, "threads": a.threads, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
