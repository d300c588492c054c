"""Writes one optimizer step of a PyTorch training run into a folder that `launcher check FOLDER` judges.

Copy this file next to your program; it needs torch and safetensors only. Three lines around one step:

    recorder = step.Recorder(model, "step", config=model.config)      # before the first forward pass of the step
    loss = model(input_ids=ids, labels=labels).loss; loss.backward()  # your step, as it is
    recorder.save(loss=loss)                                          # before clipping and before optimizer.step()

If the loss is computed outside of the model, name the targets: save(labels=labels, labels_shifted=True).
Facts that no hook can see go into save() too: reduction="mean", loss_scale=1.0, auxiliary=[...], fp8="mxfp8 experts".
Every rank of a parallel run makes a Recorder with its mesh, and its tokens' places in the global batch:

    recorder = step.Recorder(model, "step", config=config, mesh={"dp": 2, "ep": 4}, coordinate={"dp": 0, "ep": 1})
    recorder.save(loss=loss, positions=positions)                     # [tokens of this rank], flat indices

Recorder(..., experts=True) also records the rows of each expert, so that their products can be compared with the sums of a GPU.

Hooks copy tensors to the host at once. The step takes longer, its numbers stay the same.
"""

import json
import os
import re

import torch
from safetensors.torch import save_file

WRAPPERS = re.compile(r"(^|\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)(?=\.|$)")


def bare(name):
    """The name of a module or parameter without what wrappers put into it."""
    return WRAPPERS.sub("", name).lstrip(".")


def host(tensor):
    """A copy in host memory. Of a DTensor, the local shard."""
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return tensor.detach().to("cpu", copy=True).contiguous()


def in_backward():
    return torch._C._current_graph_task_id() != -1


class Products(torch.overrides.TorchFunctionMode):
    """Keeps the products of weights of all experts in one, [experts, rows, columns]: of a loop over experts, or grouped."""

    def __init__(self, recorder, path, module):
        super().__init__()
        self.recorder, self.path, self.module = recorder, path, module

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in ("linear", "grouped_mm", "_grouped_mm") or len(args) < 2 or not self.expert(args[1]):
            return func(*args, **kwargs)
        (name, first), x = self.expert(args[1]), args[0].view_as(args[0])  # its gradient is this product's part alone
        y = func(x, *args[1:], **kwargs)
        ends = [len(x)]
        if args[1].dim() == 3:
            ends = (kwargs["offs"] if "offs" in kwargs else args[2]).tolist()
        for expert, (lo, hi) in enumerate(zip([0] + ends, ends), first):
            micro, call = self.module._step_call
            key, rows = (f"{self.path}.{expert}.{name}", micro, call), slice(lo, hi)
            self.recorder.calls[key[:2]] = max(call, self.recorder.calls.get(key[:2], 0))
            for field, value in ("input", x), ("output", y):
                if hi > lo:
                    self.recorder.keep((*key, field), value[rows])
                    self.recorder.keep_gradient(value, (*key, "grad_" + field), rows)
        return y

    def expert(self, weight):
        """The name of the parameter that a weight is a part of, and the first expert of that part."""
        for name, p in self.module.named_parameters(recurse=False):
            offset = weight.data_ptr() - p.data_ptr()
            if p.dim() == 3 and 0 <= offset < p.nbytes and weight.dtype == p.dtype:
                return name, offset // p[0].nbytes
        return None


class Recorder:
    def __init__(self, model, folder, config=None, weights=None, mesh=None, coordinate=None, experts=False):
        """Hooks every module of model, and writes the weights as they are now unless `weights` names their folder."""
        self.model, self.mesh, self.coordinate = model, mesh, coordinate or {}
        self.rank = torch.distributed.get_rank() if mesh and torch.distributed.is_initialized() else 0
        self.folder = os.path.join(folder, f"rank-{self.rank}") if mesh else folder
        self.kept = {}  # (path, micro-batch, call, field) -> tensor
        self.batches = []  # the integer arguments of the model, one dict per micro-batch
        self.calls, self.recomputed, self.differs = {}, {}, set()
        self.fired, self.non_tensors, self.info = set(), set(), {}
        os.makedirs(self.folder, exist_ok=True)
        self.write_config(config if config is not None else getattr(model, "config", None))
        self.info["weights"] = weights
        if weights is None:
            state = {bare(n): host(t) for n, t in model.state_dict().items() if torch.is_tensor(t)}
            self.write("model", state)
        self.modules = {bare(n): m for n, m in model.named_modules()}  # of a wrapper and its module: the module
        self.hooks, self.forwards = [], []
        for path, module in self.modules.items():
            if path == "":
                module = model
            self.hooks += [
                module.register_forward_pre_hook(self.before(path), with_kwargs=True),
                module.register_forward_hook(self.behind(path), with_kwargs=True),
            ]
            if experts and path.endswith(".experts"):
                self.forwards.append((module, module.__dict__.get("forward")))
                module.forward = self.with_products(path, module, module.forward)

    def with_products(self, path, module, forward):
        """A forward function that keeps the products inside a module of fused experts, as if each expert had linear layers."""

        def run(*args, **kwargs):
            with Products(self, path, module):
                return forward(*args, **kwargs)

        return run

    def write_config(self, config):
        if config is None:
            raise ValueError("config: expected the model's configuration in Hugging Face's form (a dict, or model.config)")
        if not isinstance(config, dict):
            config = config.to_dict()
        self.write_json("config.json", config)

    def write_json(self, name, value):
        with open(os.path.join(self.folder, name), "w") as file:
            json.dump(value, file, indent=1, default=str)

    def write(self, name, tensors):
        if tensors:
            save_file(tensors, os.path.join(self.folder, name + ".safetensors"))

    # Hooks

    def keep(self, key, tensor):
        """Keeps a tensor of the first forward pass. A recomputation is compared with it."""
        value = host(tensor)
        if key in self.kept:
            if not torch.equal(self.kept[key], value):
                self.differs.add(key[0])
            return
        self.kept[key] = value

    def keep_gradient(self, tensor, key, rows=slice(None)):
        if tensor.requires_grad and not tensor.is_leaf:
            tensor.register_hook(lambda g: self.kept.__setitem__(key, host(g[rows])))

    def start(self, path, args, kwargs):
        """The micro-batch and call number of a module's forward pass that begins."""
        if path == "" and not in_backward():
            given = dict(zip(("input_ids", "attention_mask", "position_ids"), args)) | kwargs
            self.batches.append({k: host(v) for k, v in given.items() if torch.is_tensor(v) and not v.is_floating_point()})
            cast = torch.is_autocast_enabled("cuda") and "cuda" or torch.is_autocast_enabled("cpu") and "cpu"
            self.info["autocast"] = str(torch.get_autocast_dtype(cast)).removeprefix("torch.") if cast else None
        micro = max(len(self.batches) - 1, 0)
        if not in_backward():
            call = self.calls[path, micro] = self.calls.get((path, micro), -1) + 1
            return micro, call
        # Recomputations come from the last micro-batch whose backward pass runs, in the same order.
        call = self.recomputed[path, micro] = self.recomputed.get((path, micro), -1) + 1
        return micro, call % (self.calls.get((path, micro), 0) + 1)

    def before(self, path):
        def hook(module, args, kwargs):
            self.fired.add(path)
            module._step_call = self.start(path, args, kwargs)
            if path == "":
                return None
            count = 0

            def alias(value):
                nonlocal count
                if not torch.is_tensor(value) or value.dtype == torch.bool:
                    return value
                field = "input" + (f".{count}" if count else "")
                count += 1
                key = (path, *module._step_call)
                self.keep((*key, field), value)
                if value.is_floating_point() and value.requires_grad:
                    value = value.view_as(value)  # its gradient is this module's part alone
                    self.keep_gradient(value, (*key, field.replace("input", "grad_input")))
                return value

            args = tuple(alias(a) for a in args)
            names = [k for k in kwargs if k not in ("attention_mask", "position_ids", "cache_position")]
            return args, {**kwargs, **{k: alias(kwargs[k]) for k in names}}

        return hook

    def behind(self, path):
        def hook(module, args, kwargs, output):
            if path == "":
                return
            key = (path, *module._step_call)
            values = output if isinstance(output, (tuple, list)) else (output,)
            tensors = [v for v in values if torch.is_tensor(v)]
            if not tensors:
                self.non_tensors.add(f"{path}.output: {type(output).__name__}")
            if self.is_router(path, module) and len(tensors) > 1:
                return self.keep_router(key, tensors)
            for i, value in enumerate(values):
                field = "output" + (f".{i}" if i else "")
                if torch.is_tensor(value) and value.numel() <= 4 * tensors[0].numel():  # no attention probabilities
                    self.keep((*key, field), value)
                    self.keep_gradient(value, (*key, field.replace("output", "grad_output")))

        return hook

    @staticmethod
    def is_router(path, module):
        return path.endswith((".gate", ".router")) or "Router" in type(module).__name__

    def keep_router(self, key, tensors):
        """Names what a router returns by its form: indices are integers, weights have their shape, logits are wider."""
        indices = next((t for t in tensors if not t.is_floating_point()), None)
        for value in tensors:
            if value is indices:
                field = "indices"
            elif not value.is_floating_point():
                continue  # counts of tokens per expert
            else:
                field = "weights" if indices is not None and value.shape == indices.shape else "logits"
            self.keep((*key, field), value)
            if value.is_floating_point():
                self.keep_gradient(value, (*key, field + ".grad"))

    # Files

    def save(self, loss=None, labels=None, positions=None, placements=None, optimizer=None, **facts):
        """Writes batch, activations, gradients and step.json, and removes the hooks.

        placements names shards that are no DTensors: {parameter: ["Replicate", "Shard(0)"]}, one word per dimension of the mesh.
        """
        for hook in self.hooks:
            hook.remove()
        for module, forward in self.forwards:
            del module.forward
            if forward is not None:
                module.forward = forward
        if labels is not None:
            for i, part in enumerate(labels if isinstance(labels, (list, tuple)) else [labels]):
                self.batches[i]["labels"] = host(part)
        self.write_batch()
        self.write("activations", {f"{p}{self.repeat(p, m, c)}.{f}": t for (p, m, c, f), t in self.kept.items()})
        self.write_parameters("gradients", lambda p: getattr(p, "main_grad", None) if getattr(p, "main_grad", None) is not None else p.grad)
        self.write_info(loss, optimizer, facts)
        if self.mesh:
            self.write_placement(positions, placements or {})

    def repeat(self, path, micro, call):
        """The suffix of a module that runs more than once in a step."""
        many = len(self.batches) > 1 or self.calls[path, micro] > 0
        return f"@mb{micro}.call{call}" if many else ""

    def write_batch(self):
        names = {n for batch in self.batches for n in batch}
        cat = lambda n: torch.cat([b[n].reshape(1, -1) if b[n].dim() == 1 else b[n] for b in self.batches])
        self.write("batch", {n: cat(n) for n in names if all(n in b for b in self.batches)})

    def write_parameters(self, name, of):
        found = {bare(n): of(p) for n, p in self.model.named_parameters()}
        self.write(name, {n: host(t) for n, t in found.items() if t is not None})

    def write_info(self, loss, optimizer, facts):
        config = getattr(self.model, "config", None)
        device = next(self.model.parameters()).device
        self.info.update(
            format="step-1",
            framework=facts.pop("framework", "torch"),
            torch=torch.__version__,
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            float32_matmul_precision=torch.get_float32_matmul_precision(),
            attention=getattr(config, "_attn_implementation", None),
            compile=any("_orig_mod" in n for n, _ in self.model.named_modules()),
            loss_value=None if loss is None else float(host(loss) if torch.is_tensor(loss) else loss),
            micro_batches=len(self.batches),
            ranks=torch.distributed.get_world_size() if self.mesh and torch.distributed.is_initialized() else 1,
            dtypes={bare(n): str(p.dtype).removeprefix("torch.") for n, p in self.model.named_parameters()},
            silent=sorted(p for p, m in self.modules.items() if p not in self.fired and not isinstance(m, (torch.nn.ModuleList, torch.nn.ModuleDict))),
            non_tensors=sorted(self.non_tensors),
            recomputed=bool(self.recomputed),
            recomputation_differs=sorted(self.differs),
            optimizer=optimizer and {"name": type(optimizer).__name__, **{k: v for k, v in optimizer.defaults.items() if not callable(v)}},
        )
        self.info.update({"loss": "cross_entropy", "reduction": "mean", "loss_scale": 1.0, "labels_shifted": False, "auxiliary": [], "fp8": None})
        self.info.update(facts)
        self.write_json("step.json", self.info)

    def write_placement(self, positions, placements):
        tensors = {name: {"placements": words} for name, words in placements.items()}
        for name, p in self.model.named_parameters():
            if hasattr(p, "placements"):
                axes = list(p.device_mesh.mesh_dim_names or ())
                if not set(axes) <= set(self.mesh) or not axes:
                    raise ValueError(f"{name} is sharded over the mesh dimensions {axes}: name each of them in mesh, which has {list(self.mesh)}")
                words = {a: re.sub(r"dim=|\(\)", "", repr(x)) for a, x in zip(axes, p.placements)}
                tensors[bare(name)] = {"placements": [words.get(a, "Replicate") for a in self.mesh]}
        placement = {"mesh": self.mesh, "coordinate": self.coordinate, "tensors": tensors}
        if positions is not None:
            placement["positions"] = torch.as_tensor(positions).flatten().tolist()
        self.write_json("placement.json", placement)

    def after(self):
        """Optionally, behind optimizer.step(): writes the new weights."""
        self.write_parameters("after", lambda p: p)
