package main

// The commands. Parsing, help, completion and spelling errors follow from this table and from the
// flags that each command defines.

import (
	"context"
	"flag"
	"slices"
	"strings"
)

// command is one word of the command line.
type command struct {
	name     string
	group    string // its heading in the help
	args     string // what follows the flags: "PATH...", or words to choose from, such as "ls|verify"
	about    string
	define   func(fs *flag.FlagSet) func(ctx context.Context, env env) error // runs after parsing
	examples []string                                                        // command lines, behind "launcher "
}

// The groups of commands, in the order in which help lists them.
const (
	toTrain   = "train"
	toLook    = "look at runs and models"
	toCheck   = "check"
	toMeasure = "measure"
	toKnow    = "about launcher itself"
)

func groups() []string { return []string{toTrain, toLook, toCheck, toMeasure, toKnow} }

func commands() []command {
	return []command{
		{"train", toTrain, "", "train a model on text", defineTrain, []string{
			"-np 8 train --steps 100",
			"-np 4 train --flavor small --data corpus/ --precision mxfp8 --save-every 500 --out runs/small",
			"-np 4 train --ranks process --spares 1 --data corpus/",
			"-np 4 train --resume --out runs/small",
			"-np 8 train --flavor 16B --dry-run",
		}},
		{"compare", toCheck, "", "train in several precisions and test whether they end where the first does", defineCompare, []string{
			"compare --quick",
			"-np 4 compare --precision bf16,mxfp8 --seeds 3 --out runs/compare-1",
		}},
		{"check", toCheck, "PATH...", "hold this build against golden data of another implementation", defineCheck, []string{
			"check golden/",
			"-np 2 check golden/ mx.safetensors",
		}},
		{"report", toLook, "[RUN...]", "write the page of a run, its plots and its TensorBoard events again", defineReport, []string{
			"report runs/debug-1",
		}},
		{"checkpoint", toLook, "ls|verify|export PATH...", "list a run's checkpoints, verify them, or export weights as one safetensors file", defineCheckpoint, []string{
			"checkpoint ls runs/debug-1",
			"checkpoint verify runs/debug-1",
			"checkpoint export runs/debug-1 --out model.safetensors",
		}},
		{"generate", toLook, "", "continue texts with a trained model", defineGenerate, []string{
			`generate --prompt "func main"`,
			`generate --checkpoint runs/debug-1 --prompt "// New" --temperature 0.8 --top-p 0.9 --max-tokens 200`,
		}},
		{"eval", toLook, "", "measure how well a trained model predicts text", defineEval, []string{
			"eval --checkpoint runs/debug-1",
			"-np 2 eval --checkpoint runs/debug-1 --data corpus/ --json",
		}},
		{"convert", toTrain, "", "write weights as a Hugging Face model, or change the type of such a model's weights", defineConvert, []string{
			"convert --from runs/debug-1 --to exported",
			"convert --from deepseek-fp8 --to deepseek-bf16 --dtype bf16",
		}},
		{"bench", toMeasure, "kernels|exchange|link|train|ratios", "measure this machine's kernels, the exchange of its ranks, the link between hosts, or training steps, against its own limits, or ratios for project", defineBench, []string{
			"bench kernels --quick",
			"-np 4 bench exchange",
			"bench kernels --match ^mxfp8_gemm --json kernels.jsonl",
		}},
		{"project", toMeasure, "[explain|validate|sweep|hosts]", "what a recipe would do on a cluster of GPUs, and how far published figures are met; or on CPU hosts", defineProject, []string{
			"project --gpu b200",
			"project explain --stack titan_deepep --precision mxfp8-experts --duplicate 2",
			"project validate",
			"project sweep --gpu gb200 --stack megatron_overlap --precision mxfp8 --seq 4096 --out sweep",
			"project hosts --train train.jsonl --link-gbits 100 --link-latency 10us",
		}},
		{"chaos", toCheck, "[points|kill|stop|bits|short|launcher|files|quiet]", "train while ranks fail, and hold the result against an undisturbed run", defineChaos, []string{
			"-np 4 chaos --for 1m",
			"-np 4 chaos kill --count 50 --json faults.jsonl",
		}},
		{"data", toTrain, "tokenize|inspect|train-tokenizer [PATH...]", "tokenize text once, look at what data holds, or train a tokenizer", defineData, []string{
			"data inspect corpus/",
			"data train-tokenizer --data corpus/ --vocab 8192 --out tokenizer.json",
			"data tokenize --data corpus/ --tokenizer tokenizer.json --out corpus.arrow",
		}},
		{"inspect", toLook, "[FLAVOR|RUN|CHECKPOINT|FOLDER]", "a model's parameters, memory, FLOPs and bytes, part by part", defineInspect, []string{
			"inspect 671B",
			"-np 64 inspect 16B --seq 4096 --batch 64 --precision mxfp8",
			"inspect runs/debug-1 --json",
		}},
		{"completion", toKnow, "bash|zsh|fish", "print a script that lets a shell complete command lines", defineCompletion, []string{
			"completion bash > ~/.local/share/bash-completion/completions/launcher",
			"completion zsh > ~/.zfunc/_launcher",
			"completion fish > ~/.config/fish/completions/launcher.fish",
		}},
		{"version", toKnow, "", "what was built, and what it runs on", defineVersion, []string{
			"version",
		}},
		{"help", toKnow, "[COMMAND]", "the commands, or the flags of one, with examples", defineHelp, []string{
			"help train",
		}},
	}
}

// flags returns a command's flag set, and the function that runs the command once the flags are
// set.
func (c command) flags() (*flag.FlagSet, func(context.Context, env) error) {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	action := c.define(fs)
	return fs, action
}

// actions returns the words to choose from that a command takes first, such as ls and verify.
func (c command) actions() []string {
	first, _, _ := strings.Cut(c.args, " ")
	if first = strings.Trim(first, "[]"); !strings.Contains(first, "|") || first != strings.ToLower(first) {
		return nil
	}
	return strings.Split(first, "|")
}

func find(cmds []command, name string) (command, bool) {
	i := slices.IndexFunc(cmds, func(c command) bool { return c.name == name })
	if i < 0 {
		return command{}, false
	}
	return cmds[i], true
}

func commandNames(cmds []command) []string {
	var all []string
	for _, c := range cmds {
		all = append(all, c.name)
	}
	return all
}
