package main

// The names that other trainers give to flags, configuration keys and values: TorchTitan, nanochat,
// Megatron-LM, Hugging Face Transformers and torchrun. Edit distance does not find these.

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"spmoe/collective/ep"
)

// flagSynonyms returns the flags that are meant by a name of other tools. A command suggests the
// first of them that it has.
func flagSynonyms() map[string][]string {
	all := map[string][]string{}
	for name, list := range map[string]string{
		"optimizer.lr":           "learning-rate max-lr peak-lr base-lr matrix-lr embedding-lr lr-peak",
		"optimizer.warmup":       "warmup-steps lr-warmup-steps warmup-iters lr-warmup-iters num-warmup-steps",
		"optimizer.decay":        "lr-decay-style lr-scheduler lr-scheduler-type decay-type scheduler",
		"optimizer.decay-frac":   "decay-ratio warmdown-ratio cooldown-frac lr-wsd-decay-iters lr-decay-iters",
		"optimizer.min-factor":   "min-lr min-lr-factor min-lr-ratio final-lr-frac lr-min end-lr",
		"optimizer.weight-decay": "wd adam-weight-decay",
		"optimizer.clip-norm":    "grad-clip clip-grad max-norm max-grad-norm gradient-clip gradient-clipping grad-norm-clip",
		"optimizer.beta1":        "adam-beta1 beta-1",
		"optimizer.beta2":        "adam-beta2 beta-2",
		"optimizer.eps":          "adam-eps adam-epsilon epsilon",
		"optimizer.name":         "optimizer optim optimizer-type",
		"optimizer.momentum":     "muon-momentum",
		"optimizer.moments":      "exp-avg-dtype exp-avg-sq-dtype optimizer-dtype optimizer-state-dtype moments-dtype",

		"batch":          "batch-size global-batch-size train-batch-size total-batch-size bs",
		"micro-batch":    "local-batch-size device-batch-size per-device-train-batch-size per-device-batch-size micro-batch-size mbs gradient-accumulation-steps grad-accum grad-accum-steps",
		"seq":            "seq-len seq-length sequence-length sequence-len max-seq-len max-seq-length max-sequence-length block-size context-length ctx-len n-ctx block",
		"steps":          "max-steps num-steps train-steps training-steps total-steps num-iterations train-iters max-iters iterations iters",
		"precision":      "dtype mixed-precision torch-dtype bf16 fp16 fp8 float8 fp8-format mxfp8 compute-dtype",
		"recompute":      "activation-checkpoint activation-checkpointing gradient-checkpointing recompute-granularity recompute-activations",
		"seed":           "random-seed manual-seed",
		"threads":        "num-threads omp-num-threads num-workers",
		"data":           "dataset dataset-path dataset-name data-path data-dir train-data train-data-path train-file corpus",
		"data-field":     "text-column text-field json-keys content-key",
		"document-mask":  "reset-attention-mask block-causal intra-document-mask",
		"tokenizer":      "tokenizer-path tokenizer-model tokenizer-name tokenizer-type tokenizer-name-or-path hf-assets-path",
		"flavor":         "model model-name config-name model-type model-size preset",
		"init-from":      "model-name-or-path pretrained pretrained-model initial-load-path load-from load-weights finetune",
		"resume":         "resume-from resume-from-checkpoint load load-step continue-from",
		"out":            "output output-dir save-dir dump-folder out-dir save checkpoint-dir run-dir run-name job-name",
		"save-every":     "save-interval save-steps checkpoint-interval checkpoint-every interval save-freq",
		"keep":           "save-total-limit keep-latest-k max-checkpoints keep-last",
		"log-every":      "log-interval logging-steps log-freq print-every verbose",
		"eval-every":     "eval-interval eval-steps val-interval validation-freq valid-every val-every",
		"eval-sequences": "eval-iters eval-tokens val-steps validation-steps eval-batches",
		"config":         "job.config-file config-file cfg",
		"profile":        "enable-profiling profiling",
		"trace":          "trace-path profile-trace chrome-trace",
		"np":             "nproc-per-node nproc num-processes num-proc world-size n-procs ranks-per-node expert-parallel-degree expert-model-parallel-size ep-size",
		"ep-capacity":    "moe-expert-capacity-factor capacity-factor expert-capacity",

		"model.vocab":          "vocab-size padded-vocab-size n-vocab",
		"model.dim":            "hidden-size n-embd d-model model-dim embed-dim embedding-dim hidden-dim",
		"model.layers":         "num-layers n-layer n-layers num-hidden-layers depth",
		"model.dense-layers":   "first-k-dense-replace n-dense-layers num-dense-layers",
		"model.dense-inter":    "intermediate-size ffn-hidden-size inter-dim ffn-dim d-ff",
		"model.heads":          "num-heads n-head n-heads num-attention-heads",
		"model.q-rank":         "q-lora-rank",
		"model.kv-rank":        "kv-lora-rank",
		"model.nope-dim":       "qk-nope-head-dim",
		"model.rope-dim":       "qk-rope-head-dim",
		"model.value-dim":      "v-head-dim",
		"model.experts":        "num-experts n-routed-experts num-routed-experts n-experts num-local-experts",
		"model.top-k":          "top-k moe-router-topk num-experts-per-tok router-topk num-experts-per-token experts-per-token",
		"model.expert-inter":   "moe-intermediate-size moe-inter-dim moe-ffn-hidden-size",
		"model.shared-experts": "n-shared-experts num-shared-experts",
		"model.groups":         "n-group n-groups num-expert-groups moe-router-num-groups n-expert-groups",
		"model.top-k-groups":   "topk-group topk-groups n-limited-groups moe-router-group-topk",
		"model.score-func":     "scoring-func moe-router-score-function",
		"model.route-scale":    "routed-scaling-factor moe-router-topk-scaling-factor",
		"model.norm-top-k":     "norm-topk-prob",
		"model.bias-speed":     "moe-router-bias-update-rate load-balance-coeff bias-update-rate bias-update-speed",
		"model.balance-alpha":  "moe-aux-loss-coeff router-aux-loss-coef aux-loss-alpha aux-loss-coef seq-aux-alpha",
		"model.mtp-layers":     "mtp-num-layers num-nextn-predict-layers",
		"model.mtp-weight":     "mtp-loss-scaling-factor mtp-loss-weight",
		"model.force-balance":  "debug-force-load-balance moe-router-force-load-balancing",
		"model.max-positions":  "max-position-embeddings",
		"model.rope-theta":     "rotary-base",
		"model.norm-eps":       "rms-norm-eps norm-epsilon layernorm-epsilon",
		"max-tokens":           "max-new-tokens max-length num-tokens n-predict max-gen-len",
		"temperature":          "temp",
		"prompt-file":          "input-file prompts",
		"checkpoint":           "ckpt checkpoint-path model-path model-dir ckpt-path run",
		"vocab":                "vocab-size",
		"restarts":             "max-restarts",
		"ep-exchange":          "moe-token-dispatcher-type dispatcher comm-backend",
		"ep":                   "expert-model-parallel-size expert-parallel-size expert-parallel-degree",
		"dp-replicate":         "data-parallel-replicate-degree dp-replicate-degree num-distributed-optimizer-instances",
		"dp-shard":             "data-parallel-shard-degree dp-shard-degree",
		"pp":                   "pipeline-parallel-degree pipeline-model-parallel-size",
		"pp-schedule":          "pipeline-parallel-schedule",
		"pp-microbatches":      "pipeline-parallel-microbatches",
		"pp-layout":            "pipeline-model-parallel-layout",
		"pp-stages-per-rank":   "stages-per-rank num-virtual-stages-per-pipeline-rank virtual-pipeline-model-parallel-size n-local-stages",
	} {
		for _, word := range strings.Fields(list) {
			all[word] = append(all[word], name)
		}
	}
	return all
}

// flagAdvice returns what to say about flags that have no counterpart.
func flagAdvice() map[string]string {
	return byWord(map[string]string{
		"TensorBoard events are always written, to OUT/tensorboard":                               "tensorboard enable-tensorboard tensorboard-dir logging-dir save-tb-folder tb",
		"it is not supported: OUT/metrics.jsonl holds every step, and OUT/tensorboard the events": "wandb enable-wandb wandb-project wandb-name report-to mlflow trackio comet neptune",
		"spmoe computes on CPUs: -np sets the ranks and --threads the threads of each":            "device devices gpu gpus num-gpus cuda no-cuda use-cpu device-type",
		"start the launcher with mpirun or srun to use several hosts (docs/cluster.md)":           "nnodes num-nodes nodes node-rank master-addr master-port rdzv-endpoint rdzv-backend hostfile",
		"--dp-replicate, --dp-shard, --ep and --pp divide the -np ranks: layers by pp, experts by ep, all else is data-parallel with a sharded optimizer": "tensor-parallel-degree tensor-model-parallel-size tp " +
			"context-parallel-degree context-parallel-size cp dp zero-stage use-distributed-optimizer deepspeed",
		"launcher --version prints the version; --log-every 1 prints every step":                                      "v version",
		"the sections are [model], [model.yarn], [optimizer], [guard] and [mx]; all other settings stand before them": "training job trainer parallelism metrics experimental",
		"the kernels are compiled already": "compile torch-compile no-compile",
		"a run is as long as --steps says": "epochs num-epochs num-train-epochs n-epochs",
	})
}

// valueSynonyms returns the values that are meant by words of other tools, by flag.
func valueSynonyms(name string) map[string]string {
	switch name {
	case "precision":
		return map[string]string{
			"fp8": "mxfp8", "float8": "mxfp8", "mx8": "mxfp8", "mxfp8_e4m3": "mxfp8", "int8": "mxint8", "bfloat16": "bf16", "bf": "bf16",
			"fp16": "bf16", "float16": "bf16", "half": "bf16", "float32": "fp32", "float": "fp32", "fp4": "mxfp8", "nvfp4": "mxfp8", "mxfp4": "mxfp8",
		}
	case "dtype", "optimizer.moments", "optimizer.newton-schulz":
		return map[string]string{"bfloat16": "bf16", "float32": "fp32", "fp16": "bf16", "float16": "bf16"}
	case "optimizer.name":
		return map[string]string{"adam": "adamw", "adam-w": "adamw", "fused-adamw": "adamw", "muonclip": "muon", "dist-muon": "muon"}
	case "optimizer.decay":
		return map[string]string{"cos": "cosine", "wsd": "linear", "1-sqrt": "sqrt"}
	case "recompute":
		return map[string]string{"op": "selective", "memory": "selective", "all": "full", "off": "none", "true": "full", "false": "none"}
	case "ranks":
		return map[string]string{"thread": "goroutine", "threads": "goroutine", "goroutines": "goroutine", "processes": "process", "proc": "process"}
	}
	return nil
}

// valueAdvice returns what to add to the error about a value that another flag takes.
func valueAdvice(name, value string) string {
	if name == "ep" && slices.Contains(ep.Names(), value) {
		return "; --ep-exchange selects the exchange"
	}
	return ""
}

// meantFlag returns the flag of fs that a name of another tool, or a name without its section,
// stands for; nil: none.
func meantFlag(fs *flag.FlagSet, name string) *flag.Flag {
	for _, target := range flagSynonyms()[name] {
		if f := fs.Lookup(target); f != nil {
			return f
		}
	}
	var match []*flag.Flag
	fs.VisitAll(func(f *flag.Flag) {
		if strings.HasSuffix(f.Name, "."+name) {
			match = append(match, f)
		}
	})
	if len(match) == 1 {
		return match[0]
	}
	return nil
}

// describeFlag returns the first clause of a flag's help.
func describeFlag(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	usage = strings.TrimPrefix(usage, value+" ")
	if end := strings.IndexAny(usage, ";:("); end > 0 {
		usage = strings.TrimSpace(usage[:end])
	}
	return usage
}

// meantKey returns a hint for an unknown key of a configuration file, such as
// training.local_batch_size; empty: none.
func meantKey(key string) string {
	if len(key) > longestWord {
		return ""
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	bind(fs, trainDefaults)
	full := strings.ReplaceAll(key, "_", "-")
	last := full[strings.LastIndexByte(full, '.')+1:]
	for _, name := range []string{full, last} {
		if f := fs.Lookup(name); f != nil {
			return ": did you mean " + keyOf(f) + "?"
		}
		if f := meantFlag(fs, name); f != nil {
			return fmt.Sprintf(": did you mean %s (%s)?", keyOf(f), describeFlag(f))
		}
		if advice := flagAdvice()[strings.ToLower(name)]; advice != "" {
			return ": " + advice
		}
	}
	if near := nearest(full, flagNames(fs)); near != "" {
		return ": did you mean " + keyOf(fs.Lookup(near)) + "?"
	}
	return ""
}

// keyOf returns the key of a flag in a configuration file, with its section: "save_every",
// "lr in [optimizer]".
func keyOf(f *flag.Flag) string {
	name := strings.ReplaceAll(f.Name, "-", "_")
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		return name[dot+1:] + " in [" + name[:dot] + "]"
	}
	return name
}

// meantValue returns the choice that a word stands for; empty: none.
func meantValue(name, word string, choices []string) string {
	if v := valueSynonyms(name)[strings.ToLower(word)]; slices.Contains(choices, v) {
		return v
	}
	return nearest(word, choices)
}
