package cli

// Words of earlier versions and of other tools. Edit distance finds the others, so synonyms are a
// dozen of each kind.

// removedCommands says which command line replaces a command or a subcommand of earlier versions.
var removedCommands = map[string]string{
	"checkpoint":   "launcher inspect RUN lists checkpoints, inspect RUN --verify reads every byte, and convert exports weights",
	"layouts":      "launcher inspect FLAVOR -np N --layouts lists layouts",
	"recipe":       "launcher inspect --recipe NAME prints a recipe",
	"report":       "launcher inspect RUN... --html writes the pages of runs",
	"routes":       "OUT/routes.arrow is an Arrow stream, which pyarrow reads (docs/routes.md); the page of a run shows its loads",
	"run":          "the scripts in docs/recipes do the same, and train --config reads a configuration",
	"schedule":     "launcher inspect FLAVOR -np N --pp N --schedule --set pp_schedule=NAME prints a schedule",
	"data inspect": "launcher data tokenize prints documents, bytes and tokens, and what it leaves out",
	"bench link":   "launcher bench exchange, started by mpirun or srun, measures the exchange between hosts",
	"bench ratios": "launcher bench kernels and bench exchange measure the same",
}

// synonyms maps words that people type from habit to commands, flags, keys and values.
var synonyms = map[string]string{
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

	"learning-rate":          "optimizer.lr",
	"batch-size":             "batch",
	"device-batch-size":      "micro-batch",
	"seq-len":                "seq",
	"max-steps":              "steps",
	"model":                  "flavor",
	"output-dir":             "out",
	"dtype":                  "precision",
	"nproc-per-node":         "np",
	"gradient-checkpointing": "recompute",
	"max-new-tokens":         "max-tokens",

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

// flagAdvice says what to do instead of flags and keys that have no counterpart.
var flagAdvice = map[string]string{
	"gpus":     onCPUs,
	"num-gpus": onCPUs,
	"device":   onCPUs,
	"epochs":   "a run is as long as --steps says",
	"nnodes":   "start the launcher with mpirun or srun to use several hosts (docs/cluster.md)",
	"wandb":    "OUT/metrics.jsonl holds every step, and OUT/tensorboard the events for TensorBoard",
	"training": "the sections are [model], [model.yarn], [optimizer], [guard], [mx], [nvfp4], [mxfp4] and [fp8]; all other settings stand before them",

	"averaged":         "runs keep no average of their weights any more: leave it out to use the last ones",
	"fast":             "texts are generated with the bits of training, which is the only way now: leave it out",
	"get-stack-traces": "kill -QUIT PID makes the process of a rank print the stacks of its goroutines",

	"http":          "OUT/report.html is written every 30 s while the run goes on and loads itself again, and TensorBoard reads OUT/tensorboard",
	"interleave":    "the precisions take turns round by round",
	"passes":        "give --micro-batch, and compare the checksums of several calls",
	"project":       "launcher project --gpu GPU projects, with --routing natural --imbalance X for the routing of a run",
	"ratios":        onImbalance,
	"record-ratios": onImbalance,
	"tasks":         onTasks,
	"trace":         "--profile shows where the time of a step goes, and the phases in OUT/metrics.jsonl how that changes",
	"until-decided": "give --seeds, a number that is fixed before the first run",
}

const (
	onCPUs      = "spmoe computes on CPUs: -np sets the ranks and --threads the threads of each"
	onImbalance = "launcher project takes --routing natural --imbalance X"
	onTasks     = "lm-evaluation-harness asks the model that launcher convert exports (docs/commands.md)"
)

// goneKey is a key that configurations of earlier versions have.
type goneKey struct {
	same    string // the value that says what is always so now
	advice  string
	refused bool // another value means what no run does any more
}

// goneKeys are the keys of earlier versions.
var goneKeys = map[string]goneKey{
	"ema":                 {"0.0", "runs keep no average of their weights any more: leave it out, which changes no other bit", false},
	"eval_tasks":          {"[]", onTasks, false},
	"pp_layout":           {`""`, "all stages of a pipeline cost the same, which changes no bit", false},
	"fp8.accumulate":      {`"fp32"`, "the sums of 14bit were not those of any GPU: remove the line to add in FP32, which gives other bits", true},
	"guard.memory":        {"1", "weights and optimizer state are compared at every step, and tables every guard.every steps; guard.every 0 turns this off", false},
	"guard.activations":   {"1", "nothing watches activations any more: --set guard.replay=N computes every Nth step twice", false},
	"nvfp4.four_over_six": {"false", "blocks have one scale now, as in Transformer Engine: remove the line, which gives other bits", true},
	"nvfp4.sum":           {`"fp32"`, "set sum instead, for all precisions", true},
}
