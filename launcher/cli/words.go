package cli

// Words of earlier versions and of other tools. Edit distance finds the others, so synonyms are
// few.

// removedCommands says which command line replaces a command or a subcommand of earlier versions.
var removedCommands = map[string]string{
	"data inspect": "launcher data tokenize counts documents, bytes and tokens, and so does launcher train --dry-run",
	"checkpoint":   "launcher inspect RUN lists checkpoints, inspect RUN --verify reads every byte, and convert exports weights",
	"layouts":      "launcher inspect FLAVOR -np N --layouts lists layouts",
	"recipe":       "docs/recipes/nvfp4.toml is a recipe to change",
	"report":       "launcher inspect RUN --html writes the page of a run",
	"routes":       "OUT/routes.arrow is an Arrow stream, which pyarrow reads (docs/routes.md)",
	"run":          "the scripts in docs/recipes do the same, and train --config reads a configuration",
	"schedule":     "launcher inspect FLAVOR -np N --pp N --schedule --set pp_schedule=NAME prints a schedule",
	"bench link":   "launcher bench exchange, started by mpirun or srun, measures the exchange between hosts",
	"bench ratios": "launcher bench kernels and bench exchange measure the same",
}

// synonyms maps words that people type from habit to commands, flags and keys.
var synonyms = map[string]string{
	"chat":     "generate",
	"evaluate": "eval",
	"export":   "convert",
	"golden":   "check",

	"learning-rate":  "optimizer.lr",
	"batch-size":     "batch",
	"max-steps":      "steps",
	"model":          "flavor",
	"output-dir":     "out",
	"nproc-per-node": "np",
	"max-new-tokens": "max-tokens",
}

// flagAdvice says what to do instead of flags of earlier versions and of other tools.
var flagAdvice = map[string]string{
	"gpus":   "spmoe computes on CPUs: -np sets the ranks and --threads the threads of each",
	"nnodes": "start the launcher with mpirun or srun to use several hosts (docs/cluster.md)",

	"shard-size":       "convert writes one file, and save_pretrained of transformers divides it: leave it out",
	"plain":            "the log is all that train prints: leave it out",
	"color":            "the log has no colors: leave it out",
	"averaged":         "runs keep no average of their weights any more: leave it out to use the last ones",
	"fast":             "texts are generated with the bits of training, which is the only way now: leave it out",
	"http":             "OUT/report.html is written while the run goes on and loads itself again, and TensorBoard reads OUT/tensorboard",
	"get-stack-traces": "kill -QUIT PID makes the process of a rank print the stacks of its goroutines",
	"passes":           "give --micro-batch, and compare the checksums of several calls",
	"project":          "launcher project --gpu GPU projects, with --routing natural --imbalance X for the routing of a run",
	"tasks":            onTasks,
	"trace":            "--profile shows where the time of a step goes, and the phases in OUT/metrics.jsonl how that changes",
	"vary":             "give values as arms: --optimizer.lr 1e-3 --precision bf16,bf16+optimizer.lr=3e-3",
	"until-decided":    "give --seeds, a number that is fixed before the first run",
}

const onTasks = "lm-evaluation-harness asks the model that launcher convert exports (docs/commands.md)"

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
