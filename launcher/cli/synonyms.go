package cli

// What words of other tools mean here: TorchTitan, nanochat, Megatron-LM, Hugging Face Transformers
// and torchrun. Edit distance does not find these. Each table lists the words of a meaning.

import (
	"maps"
	"slices"
	"strings"
)

// Meanings returns the meanings of a word in a table, in alphabetical order.
func Meanings(table map[string]string, word string) (all []string) {
	for _, meaning := range slices.Sorted(maps.Keys(table)) {
		if slices.Contains(strings.Fields(table[meaning]), strings.ToLower(word)) {
			all = append(all, meaning)
		}
	}
	return all
}

// CommandSynonyms maps words of other tools to commands.
var CommandSynonyms = map[string]string{
	"train":             "pretrain finetune fit torchrun",
	"generate":          "chat sample infer inference predict",
	"eval":              "evaluate validate perplexity lm-eval",
	"compare":           "ablate diff convergence",
	"check":             "golden reference",
	"convert":           "export import hf",
	"checkpoint":        "ckpt",
	"checkpoint ls":     "ls list",
	"checkpoint verify": "verify",
	"layouts":           "mesh parallelism",
	"inspect":           "estimate summary params flops memory",
	"bench":             "benchmark perf speed",
	"bench kernels":     "gemm matmul",
	"bench exchange":    "alltoall all-to-all a2a collectives nccl-tests",
	"bench link":        "network bandwidth latency",
	"project":           "projection simulate",
	"data":              "dataset preprocess",
	"data tokenize":     "tokenize",
	"version":           "info env",
	"help":              "usage man",
}

// FlagSynonyms are names of flags and of configuration keys.
var FlagSynonyms = map[string]string{
	"optimizer.lr":           "learning-rate max-lr",
	"optimizer.warmup":       "warmup-steps lr-warmup-steps lr-warmup-iters",
	"optimizer.decay":        "lr-decay-style lr-scheduler-type scheduler",
	"optimizer.min-factor":   "min-lr min-lr-factor",
	"optimizer.weight-decay": "wd",
	"optimizer.clip-norm":    "grad-clip clip-grad max-norm max-grad-norm",
	"optimizer.name":         "optimizer optim",
	"batch":                  "batch-size global-batch-size bs",
	"micro-batch":            "local-batch-size device-batch-size micro-batch-size per-device-train-batch-size gradient-accumulation-steps",
	"sum":                    "nvfp4.sum fp8.accumulate accumulate",
	"seq":                    "seq-len seq-length sequence-length max-seq-len block-size context-length",
	"steps":                  "max-steps num-steps training-steps train-iters max-iters num-iterations iters",
	"precision":              "dtype mixed-precision bf16 fp8 mxfp8",
	"recompute":              "activation-checkpoint activation-checkpointing gradient-checkpointing recompute-granularity",
	"threads":                "num-threads num-workers",
	"data":                   "dataset dataset-path data-path data-dir corpus",
	"data-field":             "text-column text-field",
	"tokenizer":              "tokenizer-path tokenizer-model hf-assets-path",
	"flavor":                 "model model-name preset",
	"init-from":              "pretrained load-from finetune",
	"resume":                 "resume-from resume-from-checkpoint load",
	"out":                    "output output-dir save-dir dump-folder save run-name",
	"save-every":             "save-interval save-steps checkpoint-interval interval",
	"keep":                   "save-total-limit keep-latest-k",
	"log-every":              "log-interval logging-steps log-freq verbose",
	"eval-every":             "eval-interval eval-steps val-interval",
	"eval-sequences":         "eval-iters val-steps",
	"config":                 "job.config-file config-file",
	"np":                     "nproc-per-node nproc world-size",
	"ep":                     "expert-parallel-degree expert-parallel-size expert-model-parallel-size ep-size",
	"cp":                     "context-parallel-degree context-parallel-size context-parallel",
	"tp":                     "tensor-parallel-degree tensor-parallel-size tensor-model-parallel-size tensor-parallel",
	"dp-replicate":           "data-parallel-replicate-degree",
	"dp-shard":               "data-parallel-shard-degree",
	"pp":                     "pipeline-parallel-degree pipeline-parallel-size pipeline-model-parallel-size",
	"pp-schedule":            "pipeline-parallel-schedule",
	"model.vocab":            "vocab-size",
	"model.dim":              "hidden-size n-embd d-model",
	"model.layers":           "num-layers n-layer num-hidden-layers depth",
	"model.dense-layers":     "first-k-dense-replace",
	"model.dense-inter":      "intermediate-size ffn-hidden-size",
	"model.heads":            "num-heads n-head num-attention-heads",
	"model.experts":          "num-experts n-routed-experts",
	"model.top-k":            "moe-router-topk num-experts-per-tok",
	"model.expert-inter":     "moe-intermediate-size moe-ffn-hidden-size",
	"model.balance-alpha":    "moe-aux-loss-coeff router-aux-loss-coef",
	"model.bias-speed":       "load-balance-coeff moe-router-bias-update-rate",
	"max-tokens":             "max-new-tokens max-length",
	"checkpoint":             "ckpt checkpoint-path model-path run",
	"vocab":                  "vocab-size",
	"restarts":               "max-restarts",
}

// FlagAdvice says what to do instead of flags that have no counterpart.
var FlagAdvice = map[string]string{
	"TensorBoard events are always written, to OUT/tensorboard":                                                                                                                                              "tensorboard enable-tensorboard logging-dir",
	"it is not supported: OUT/metrics.jsonl holds every step, and OUT/tensorboard the events":                                                                                                                "wandb enable-wandb wandb-project report-to mlflow trackio",
	"spmoe computes on CPUs: -np sets the ranks and --threads the threads of each":                                                                                                                           "device devices gpu gpus num-gpus cuda use-cpu",
	"start the launcher with mpirun or srun to use several hosts (docs/cluster.md)":                                                                                                                          "nnodes num-nodes nodes node-rank master-addr master-port hostfile",
	"OUT/report.html is written every 30 s while the run goes on and loads itself again, and TensorBoard reads OUT/tensorboard":                                                                              "http http-stay http-pprof",
	"--dp-replicate, --dp-shard, --cp, --tp, --ep and --pp divide the -np ranks: layers by pp, sequences by cp, those and products by tp, experts by ep, all else is data-parallel with a sharded optimizer": "sequence-parallel data-parallel-size dp zero-stage deepspeed",
	"launcher --version prints the version; --log-every 1 prints every step":                                                                                                                                 "v version",
	"the sections are [model], [model.yarn], [optimizer], [guard] and [mx]; all other settings stand before them":                                                                                            "training job parallelism",
	"the kernels are compiled already": "compile torch-compile",
	"a run is as long as --steps says": "epochs num-epochs num-train-epochs",
}

// ValueSynonyms are values, by flag.
var ValueSynonyms = map[string]map[string]string{
	"precision": {
		"fp8-block": "fp8 float8", "nvfp4": "fp4", "mxfp6-e2m3": "mxfp6", "mxint8": "int8", "bf16": "bfloat16 fp16 float16 half", "fp32": "float32 float",
	},
	"pp-schedule": {
		"1F1B": "gpipe pipedream one-forward-one-backward", "Interleaved1F1B": "interleaved vpp",
		"InterleavedZeroBubble": "zb zb1p zb-h1 zero-bubble", "ZBVZeroBubble": "zbv zb-v", "DualPipeV": "dualpipe dual-pipe",
	},
	"dtype":                   floats,
	"optimizer.moments":       floats,
	"optimizer.newton-schulz": floats,
	"optimizer.name":          {"adamw": "adam", "muon": "muonclip"},
	"optimizer.decay":         {"cosine": "cos", "linear": "wsd"},
	"recompute":               {"selective": "op", "full": "all true", "none": "false"},
	"ranks":                   {"goroutine": "thread threads", "process": "processes"},
}

var floats = map[string]string{"bf16": "bfloat16 fp16 float16", "fp32": "float32"}
