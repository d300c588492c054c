"""Holds weights that `launcher convert` has written against the Hugging Face library.

    launcher convert --from RUN --to exported
    python check.py exported checked
    launcher check checked

Runs DeepseekV3ForCausalLM in float32 on the CPU over some tokens and writes a folder that `launcher check` reads: the model as it
is, and activations.safetensors with input_ids, target_ids, what each layer computes, logits and the mean loss. Prints statistics as
JSON. Needs torch, transformers 5 and safetensors.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import DeepseekV3ForCausalLM


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that launcher convert has written")
    parser.add_argument("out", type=Path, help="folder to be made for launcher check")
    parser.add_argument("--ids", type=Path, help="JSON file: rows of token ids of one length, seq+1 each; random ones without it")
    parser.add_argument("--batch", type=int, default=2, help="rows of random ids")
    parser.add_argument("--seq", type=int, default=64, help="tokens of a random row that are predicted")
    parser.add_argument("--seed", type=int, default=1, help="of random ids")
    return parser.parse_args()


def load(folder):
    """The model, and the names in its files that the library has no use for: of the MTP module, and of nothing else."""
    model, info = DeepseekV3ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    info = info if isinstance(info, dict) else vars(info)
    mtp = tuple(
        f"model.layers.{layer}."
        for layer in range(model.config.num_hidden_layers, model.config.num_hidden_layers + getattr(model.config, "num_nextn_predict_layers", 0))
    )
    empty = [name for name, p in model.named_parameters() if p.numel() == 0]  # shared experts, where there are none
    missing = sorted(set(info["missing_keys"]) - set(empty))
    foreign = sorted(name for name in info["unexpected_keys"] if not name.startswith(mtp))
    if missing or foreign or info["mismatched_keys"]:
        sys.exit(f"the library misses {missing}, does not know {foreign}, and takes other shapes for {sorted(map(str, info['mismatched_keys']))}")
    return model.eval(), sorted(info["unexpected_keys"])


def token_rows(args, vocab):
    if args.ids:
        return torch.tensor(json.loads(args.ids.read_text()), dtype=torch.long)
    generator = torch.Generator().manual_seed(args.seed)
    return torch.randint(0, vocab, (args.batch, args.seq + 1), generator=generator)


def watch(model, seen):
    """Keeps what the parts of each layer compute, under the names that launcher check knows."""

    def keep(name):
        def hook(module, inputs, output):
            seen[name] = (output[0] if isinstance(output, tuple) else output).detach().float().contiguous()

        return hook

    for i, layer in enumerate(model.model.layers):
        layer.self_attn.register_forward_hook(keep(f"layer{i}_attention"))
        layer.post_attention_layernorm.register_forward_hook(keep(f"layer{i}_mlp_in"))
        layer.mlp.register_forward_hook(keep(f"layer{i}_mlp"))
        layer.register_forward_hook(keep(f"layer{i}_out"))


def main():
    args = arguments()
    args.out.mkdir(parents=True)
    model, unused = load(args.model)
    rows = token_rows(args, model.config.vocab_size)
    inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    seen = {}
    watch(model, seen)
    with torch.no_grad():
        logits = model(input_ids=inputs, use_cache=False).logits.float().contiguous()
    shape = (*inputs.shape,)
    for name, x in seen.items():
        seen[name] = x.reshape(*shape, -1).clone()  # the experts' output may come without the batch
    loss = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), targets.flatten())
    save_file(
        {
            **seen,
            "input_ids": inputs.to(torch.int32),
            "target_ids": targets.to(torch.int32),
            "logits": logits,
            "loss": loss.float().reshape(1),
        },
        args.out / "activations.safetensors",
        metadata={"batch": str(shape[0]), "seq": str(shape[1])},
    )
    for file in sorted(args.model.glob("model*.safetensors*")) + [args.model / "config.json"]:
        shutil.copy(file, args.out / file.name)
    json.dump(
        {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "batch": shape[0],
            "seq": shape[1],
            "loss": loss.item(),
            "logits": {"min": logits.min().item(), "max": logits.max().item(), "mean": logits.mean().item(), "std": logits.std().item()},
            "ignored": len(unused),
            "ignored_examples": unused[:5],
        },
        sys.stdout,
        indent=2,
    )
    print()


if __name__ == "__main__":
    main()
