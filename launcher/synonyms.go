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
		"optimizer.lr":           "learning-rate max-lr",
		"optimizer.warmup":       "warmup-steps lr-warmup-steps lr-warmup-iters",
		"optimizer.decay":        "lr-decay-style lr-scheduler-type scheduler",
		"optimizer.min-factor":   "min-lr min-lr-factor",
		"optimizer.weight-decay": "wd",
		"optimizer.clip-norm":    "grad-clip clip-grad max-norm max-grad-norm",
		"optimizer.name":         "optimizer optim",
		"batch":                  "batch-size global-batch-size bs",
		"micro-batch":            "local-batch-size device-batch-size micro-batch-size per-device-train-batch-size gradient-accumulation-steps",
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
		"ep":                     "expert-parallel-degree expert-model-parallel-size ep-size",
		"dp-replicate":           "data-parallel-replicate-degree",
		"dp-shard":               "data-parallel-shard-degree",
		"pp":                     "pipeline-parallel-degree pipeline-model-parallel-size",
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
		"TensorBoard events are always written, to OUT/tensorboard":                               "tensorboard enable-tensorboard logging-dir",
		"it is not supported: OUT/metrics.jsonl holds every step, and OUT/tensorboard the events": "wandb enable-wandb wandb-project report-to mlflow trackio",
		"spmoe computes on CPUs: -np sets the ranks and --threads the threads of each":            "device devices gpu gpus num-gpus cuda use-cpu",
		"start the launcher with mpirun or srun to use several hosts (docs/cluster.md)":           "nnodes num-nodes nodes node-rank master-addr master-port hostfile",
		"--dp-replicate, --dp-shard, --ep and --pp divide the -np ranks: layers by pp, experts by ep, all else is data-parallel with a sharded optimizer": "tensor-parallel-degree tensor-model-parallel-size tp " +
			"context-parallel-degree cp dp zero-stage deepspeed",
		"launcher --version prints the version; --log-every 1 prints every step":                                      "v version",
		"the sections are [model], [model.yarn], [optimizer], [guard] and [mx]; all other settings stand before them": "training job parallelism",
		"the kernels are compiled already": "compile torch-compile",
		"a run is as long as --steps says": "epochs num-epochs num-train-epochs",
	})
}

// valueSynonyms returns the values that are meant by words of other tools, by flag.
func valueSynonyms(name string) map[string]string {
	switch name {
	case "precision":
		return map[string]string{
			"fp8": "fp8-block", "float8": "fp8-block", "fp4": "nvfp4", "mxfp6": "mxfp6-e2m3", "int8": "mxint8",
			"bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "half": "bf16", "float32": "fp32", "float": "fp32",
		}
	case "dtype", "optimizer.moments", "optimizer.newton-schulz":
		return map[string]string{"bfloat16": "bf16", "float32": "fp32", "fp16": "bf16", "float16": "bf16"}
	case "optimizer.name":
		return map[string]string{"adam": "adamw", "muonclip": "muon"}
	case "optimizer.decay":
		return map[string]string{"cos": "cosine", "wsd": "linear"}
	case "recompute":
		return map[string]string{"op": "selective", "all": "full", "true": "full", "false": "none"}
	case "ranks":
		return map[string]string{"thread": "goroutine", "threads": "goroutine", "processes": "process"}
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
