"""Loss and gradients of weights that `launcher convert` wrote, as a folder that `launcher check` compares with the engine."""
import json
import pathlib
import shutil
import struct

TYPES = {"BF16": "bfloat16", "F32": "float32", "I32": "int32"}


def read(torch, path):
    """The tensors of a safetensors file."""
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, t in header.items():
        if name != "__metadata__":
            lo, hi = (8 + size + n for n in t["data_offsets"])
            tensors[name] = torch.frombuffer(data[lo:hi], dtype=getattr(torch, TYPES[t["dtype"]])).view(t["shape"])
    return tensors


def write_tensors(path, tensors, **metadata):
    header, parts, at = {"__metadata__": metadata} if metadata else {}, [], 0
    for name, t in tensors.items():
        parts.append(t.detach().contiguous().numpy().tobytes())
        kind = next(k for k, v in TYPES.items() if str(t.dtype) == "torch." + v)
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))


def names(own):
    """A tensor's names in the file: gate and up are one tensor here."""
    full = own if own.startswith("lm_head.") else "model." + own
    return [full.replace("gate_up_proj", part) for part in ("gate_proj", "up_proj")] if "gate_up_proj" in own else [full]


def load(torch, model, tensors):
    state = {own: torch.cat([tensors[n].float() for n in names(own)]) for own in model.state_dict() if own not in ("cos", "sin")}
    missing, unknown = model.load_state_dict(state, strict=False)
    if set(missing) != {"cos", "sin"} or unknown:
        raise ValueError(f"missing: {missing}, unknown: {unknown}")


def write(torch, source, out, o, batch=2, seq=48):
    from model import Model

    source, out = pathlib.Path(source), pathlib.Path(out)
    c = json.loads((source / "config.json").read_text())
    o.experts, o.dtype, o.activations = "loop", torch.float32, torch.float32
    model = Model(c, o, seq)
    load(torch, model, read(torch, source / "model.safetensors"))
    torch.manual_seed(1)
    rows = torch.randint(c["vocab_size"], (batch, seq + 1))
    inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    loss = model.loss(model(inputs), targets)
    loss.backward()
    out.mkdir(parents=True)
    ids = {"input_ids": inputs.int(), "target_ids": targets.int()}
    write_tensors(out / "activations.safetensors", {**ids, "loss": loss.reshape(1)}, batch=str(batch), seq=str(seq))
    gradients = {}
    for own, p in model.named_parameters():
        gradients.update(zip(names(own), p.grad.chunk(len(names(own)))))
    write_tensors(out / "gradients.safetensors", gradients)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(source / name, out / name)
