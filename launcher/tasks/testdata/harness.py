"""Scores task files by the rules of EleutherAI's lm-evaluation-harness, v0.4: tasks lambada_openai,
hellaswag and arc_easy without examples in the context. It shares no code with the Go packages.

    python3 harness.py --with numpy MODEL FILE... > recorded.json
    python3 harness.py --with transformers MODEL FILE... > recorded.json

With numpy, the model (DeepSeek-V3's architecture without q_lora and groups) and its tokenizer are
computed here, in float64. With transformers, they are the library's, in float32 with eager
attention. Needs numpy and regex, or torch and transformers.
"""
import argparse, json, math, re, struct, sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--with", dest="backend", choices=["numpy", "transformers"], default="transformers")
parser.add_argument("model")
parser.add_argument("files", nargs="+")
args = parser.parse_args()
config = json.loads((Path(args.model) / "config.json").read_text())
max_length = config["max_position_embeddings"]


class Transformers:
    def __init__(self):
        import torch, transformers
        self.torch, self.versions = torch, {"torch": torch.__version__, "transformers": transformers.__version__}
        self.tok = transformers.AutoTokenizer.from_pretrained(args.model)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="eager").eval()
        self.prefix = self.tok.bos_token_id if self.tok.bos_token_id is not None else self.tok.eos_token_id

    def encode(self, text):
        return self.tok.encode(text, add_special_tokens=False)

    def log_probabilities(self, ids):
        with self.torch.no_grad():
            return self.torch.log_softmax(self.model(self.torch.tensor([ids])).logits[0].float(), dim=-1).numpy()


class Numpy:
    def __init__(self):
        import numpy as np, regex
        self.np, self.versions = np, {"numpy": np.__version__}
        self.prefix = config["eos_token_id"]
        t = json.loads((Path(args.model) / "tokenizer.json").read_text())
        self.vocab = t["model"]["vocab"]
        self.ranks = {tuple(m.split(" ") if isinstance(m, str) else m): i for i, m in enumerate(t["model"]["merges"])}
        self.pattern = regex.compile(t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"])
        visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [b for b in range(256) if b not in visible]
        self.letters = {b: chr(b) for b in visible} | {b: chr(256 + i) for i, b in enumerate(hidden)}
        self.w = self.read(Path(args.model) / "model.safetensors")

    def read(self, path):
        np, data = self.np, path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        tensors = {}
        for name, t in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            lo, hi = t["data_offsets"]
            raw = data[8 + size + lo:8 + size + hi]
            if t["dtype"] == "BF16":
                x = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
            else:
                x = np.frombuffer(raw, "<f4")
            tensors[name] = x.astype(np.float64).reshape(t["shape"])
        return tensors

    def encode(self, text):
        ids = []
        for piece in self.pattern.findall(text):
            parts = [self.letters[b] for b in piece.encode()]
            while len(parts) > 1:
                rank, at = min((self.ranks.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:])))
                if rank == 1 << 30:
                    break
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            ids += [self.vocab[p] for p in parts]
        return ids

    def norm(self, x, name):
        return x / self.np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * self.w[name + ".weight"]

    def rotate(self, x):
        """x: [tokens, heads, dim], pairs of neighbors are rotated"""
        np, half = self.np, x.shape[-1] // 2
        angle = np.arange(len(x))[:, None, None] * config["rope_theta"] ** (-np.arange(half) / half)
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        return np.concatenate([z.real, z.imag], -1)

    def attention(self, x, p):
        np, w, n = self.np, self.w, len(x)
        heads, nope, rope, vdim, rank = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
        q = (x @ w[p + "q_proj.weight"].T).reshape(n, heads, nope + rope)
        latent = x @ w[p + "kv_a_proj_with_mqa.weight"].T
        kv = (self.norm(latent[:, :rank], p + "kv_a_layernorm") @ w[p + "kv_b_proj.weight"].T).reshape(n, heads, nope + vdim)
        shared = np.broadcast_to(self.rotate(latent[:, None, rank:]), (n, heads, rope))
        k = np.concatenate([kv[..., :nope], shared], -1)
        q = np.concatenate([q[..., :nope], self.rotate(q[..., nope:])], -1)
        s = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(nope + rope)
        s[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", s, kv[..., nope:]).reshape(n, heads * vdim) @ w[p + "o_proj.weight"].T

    def mlp(self, x, p):
        gate = x @ self.w[p + "gate_proj.weight"].T
        return (gate / (1 + self.np.exp(-gate)) * (x @ self.w[p + "up_proj.weight"].T)) @ self.w[p + "down_proj.weight"].T

    def moe(self, x, p):
        np = self.np
        scores = 1 / (1 + np.exp(-(x @ self.w[p + "gate.weight"].T)))
        y = self.mlp(x, p + "shared_experts.")
        best = np.argsort(-(scores + self.w[p + "gate.e_score_correction_bias"]), axis=-1, kind="stable")[:, :config["num_experts_per_tok"]]
        for t, experts in enumerate(best):
            weights = scores[t, experts] / scores[t, experts].sum() * config["routed_scaling_factor"]
            for e, weight in zip(experts, weights):
                y[t] += weight * self.mlp(x[t], f"{p}experts.{e}.")
        return y

    def log_probabilities(self, ids):
        np = self.np
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(config["num_hidden_layers"]):
            p = f"model.layers.{i}."
            x = x + self.attention(self.norm(x, p + "input_layernorm"), p + "self_attn.")
            h = self.norm(x, p + "post_attention_layernorm")
            x = x + (self.mlp if i < config["first_k_dense_replace"] else self.moe)(h, p + "mlp.")
        z = self.norm(x, "model.norm") @ self.w["lm_head.weight"].T
        z -= z.max(-1, keepdims=True)
        return z - np.log(np.exp(z).sum(-1, keepdims=True))


lm = Numpy() if args.backend == "numpy" else Transformers()


def encode_pair(context, continuation):
    if context == "":
        return [lm.prefix], lm.encode(continuation)
    n = len(context) - len(context.rstrip())
    if n > 0:
        continuation = context[-n:] + continuation
        context = context[:-n]
    whole, before = lm.encode(context + continuation), lm.encode(context)
    return before, whole[len(before):]


def loglikelihood(context, continuation):
    ctx, cont = encode_pair(context, continuation)
    assert ctx and cont and len(cont) <= max_length
    logarithms = lm.log_probabilities((ctx + cont)[-(max_length + 1):][:-1])[-len(cont):]
    greedy = all(int(row.argmax()) == t for row, t in zip(logarithms, cont))
    return float(sum(row[t] for row, t in zip(logarithms, cont))), greedy, len(ctx) + len(cont) > max_length + 1


def preprocess(text):
    text = text.strip()
    text = text.replace(" [title]", ". ")
    text = re.sub("\\[.*?\\]", "", text)
    return text.replace("  ", " ")

def stderr(xs):
    m = sum(xs) / len(xs)
    return math.sqrt(sum((x - m) ** 2 for x in xs) / (len(xs) - 1)) / math.sqrt(len(xs))

def argmax(xs):
    return max(range(len(xs)), key=lambda i: xs[i])  # the first of equal ones, as numpy.argmax

def choices(rows):
    """(query, choices, gold) of each row"""
    for r in rows:
        if "endings" in r:
            ctx = r["ctx_a"] + " " + r["ctx_b"].capitalize()
            yield preprocess(r["activity_label"] + ": " + ctx), [preprocess(e) for e in r["endings"]], int(r["label"])
        else:
            yield f"Question: {r['question']}\nAnswer:", r["choices"]["text"], r["choices"]["label"].index(r["answerKey"])

command = f"python3 harness.py --with {args.backend} {args.model} " + " ".join(args.files)
result = {**lm.versions, "command": command, "tasks": {}}
for file in args.files:
    rows = [json.loads(line) for line in Path(file).read_text().split("\n") if line]
    scores, cut = [], 0
    if "endings" not in rows[0] and "question" not in rows[0]:
        for r in rows:
            words = r["text"].split(" ")
            ll, greedy, c = loglikelihood(" ".join(words[:-1]), " " + words[-1])
            scores.append([[ll, greedy]])
            cut += c
        acc = [int(s[0][1]) for s in scores]
        metrics = {"acc": sum(acc) / len(acc), "acc_stderr": stderr(acc), "perplexity": math.exp(-sum(s[0][0] for s in scores) / len(scores))}
    else:
        acc, norm, by = [], [], []
        for query, texts, gold in choices(rows):
            scores.append([])
            for t in texts:
                ll, greedy, c = loglikelihood(query, " " + t)
                scores[-1].append([ll, greedy])
                cut += c
            lls = [s[0] for s in scores[-1]]
            acc.append(int(argmax(lls) == gold))
            norm.append(int(argmax([l / len(t) for l, t in zip(lls, texts)]) == gold))
            by.append(int(argmax([l / len(t.encode()) for l, t in zip(lls, texts)]) == gold))
        metrics = {}
        for name, xs in ("acc", acc), ("acc_norm", norm), ("acc_bytes", by):
            metrics[name], metrics[name + "_stderr"] = sum(xs) / len(xs), stderr(xs)
    result["tasks"][Path(file).stem] = {"items": len(rows), "truncated": cut, "metrics": metrics, "scores": scores}
json.dump(result, sys.stdout, separators=(",", ":"))
print()
for name, t in result["tasks"].items():
    print(name, t["items"], t["truncated"], t["metrics"], file=sys.stderr)
