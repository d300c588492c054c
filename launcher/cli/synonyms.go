package cli

// Words that people type from habit of other tools, and that edit distance does not find. Keep each
// table to about a dozen: help and the nearest spelling serve the others.

// commandSynonyms maps words to commands.
var commandSynonyms = map[string]string{
	"pretrain":   "train",
	"finetune":   "train",
	"chat":       "generate",
	"sample":     "generate",
	"infer":      "generate",
	"evaluate":   "eval",
	"perplexity": "eval",
	"export":     "convert",
	"benchmark":  "bench",
	"dataset":    "data",
	"tokenize":   "data",
	"golden":     "check",
}

// flagSynonyms maps names of flags and of configuration keys to those of this program.
var flagSynonyms = map[string]string{
	"learning-rate":          "optimizer.lr",
	"batch-size":             "batch",
	"device-batch-size":      "micro-batch",
	"seq-len":                "seq",
	"max-steps":              "steps",
	"model":                  "flavor",
	"dataset":                "data",
	"output-dir":             "out",
	"dtype":                  "precision",
	"nproc-per-node":         "np",
	"gradient-checkpointing": "recompute",
	"max-new-tokens":         "max-tokens",
}

// flagAdvice says what to do instead of flags that have no counterpart.
var flagAdvice = map[string]string{
	"gpus":     onCPUs,
	"num-gpus": onCPUs,
	"device":   onCPUs,
	"epochs":   "a run is as long as --steps says",

	"guard.memory":      "it is guard.every now: weights and optimizer state are compared at every step, and tables every guard.every steps",
	"guard.activations": "nothing watches activations any more: --set guard.replay=N computes every Nth step twice",

	"nnodes":   "start the launcher with mpirun or srun to use several hosts (docs/cluster.md)",
	"http":     "OUT/report.html is written every 30 s while the run goes on and loads itself again, and TensorBoard reads OUT/tensorboard",
	"wandb":    "OUT/metrics.jsonl holds every step, and OUT/tensorboard the events for TensorBoard",
	"training": "the sections are [model], [model.yarn], [optimizer], [guard], [mx], [nvfp4], [mxfp4] and [fp8]; all other settings stand before them",
}

const onCPUs = "spmoe computes on CPUs: -np sets the ranks and --threads the threads of each"

// valueSynonyms maps values to those of this program, for all flags that take these.
var valueSynonyms = map[string]string{
	"fp8":      "fp8-block",
	"fp4":      "nvfp4",
	"mxfp6":    "mxfp6-e2m3",
	"bfloat16": "bf16",
	"fp16":     "bf16",
	"float32":  "fp32",
	"adam":     "adamw",
	"cos":      "cosine",
	"zbv":      "ZBVZeroBubble",
	"gpipe":    "1F1B",
	"dualpipe": "DualPipeV",
}
