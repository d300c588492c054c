package main

// The table of commands. Parsing, help, completion and suggestions follow from it and from the
// flags that each command defines.

import (
	"context"
	"flag"
	"slices"
	"strings"
)

// action runs a command after its flags are parsed.
type action func(context.Context, env) error

// command is a command or a subcommand. Each one defines exactly the flags that its code reads.
type command struct {
	name        string // as typed: "train", "bench link"
	group       string // its heading in the overview; subcommands have none
	args        string // what follows the flags: "PATH...", or a choice such as "bash|zsh|fish"
	about       string
	define      func(fs *flag.FlagSet) action // nil: one of the subcommands must be given
	subcommands []command
	examples    []string // command lines without the leading "launcher"
	outlives    bool     // goes on when the reader of its output has gone
}

// The groups of commands, in the order in which help lists them.
const (
	groupTrain   = "train"
	groupInspect = "inspect runs and models"
	groupCheck   = "check"
	groupMeasure = "measure"
	groupAbout   = "about launcher"
)

func groups() []string {
	return []string{groupTrain, groupInspect, groupCheck, groupMeasure, groupAbout}
}

// allCommands is the table of commands.
var allCommands func() []command

func init() { allCommands = commands }

func commands() []command {
	return []command{
		{name: "train", group: groupTrain, about: "train a model on text", define: defineTrain, outlives: true, examples: []string{
			"-np 8 train --steps 100",
			"-np 4 train --flavor small --data corpus/ --precision mxfp8 --save-every 500 --out runs/small",
			"-np 4 train --ranks process --spares 1 --data corpus/",
			"-np 4 train --resume --out runs/small",
			"-np 8 train --flavor 16B --dry-run",
		}},
		{name: "compare", group: groupCheck, about: "train in several precisions and test whether their final losses are equivalent", define: defineCompare, outlives: true, examples: []string{
			"compare --quick",
			"-np 4 compare --precision bf16,mxfp8 --until-decided --max-seeds 24",
			"-np 4 compare --power 0.8 --margin 1 --out runs/compare-1",
			"compare --simulate 1000",
			"compare --sizes runs/compare-1,runs/compare-2",
		}},
		{name: "check", group: groupCheck, args: "PATH...", about: "compare this build with another implementation's outputs", define: defineCheck, examples: []string{
			"check golden/",
			"-np 2 check golden/ mx.safetensors",
		}},
		{name: "verify-layouts", group: groupCheck, about: "train in every layout of the ranks and compare the states bit for bit", define: defineVerifyLayouts, examples: []string{
			"-np 8 verify-layouts",
			"-np 4 verify-layouts --ranks process --precision mxfp8 --json layouts.jsonl",
		}},
		{name: "report", group: groupInspect, args: "[RUN...]", about: "write the report pages of runs again, and one page of several runs", define: defineReport, examples: []string{
			"report runs/debug-1",
			"report runs/*",
		}},
		{name: "checkpoint", group: groupInspect, about: "list, verify or export checkpoints", subcommands: checkpointCommands(), examples: []string{
			"checkpoint ls runs/debug-1",
			"checkpoint verify runs/debug-1",
			"checkpoint export runs/debug-1 --out model.safetensors",
		}},
		{name: "generate", group: groupInspect, about: "generate text with a trained model", define: defineGenerate, examples: []string{
			`generate --prompt "func main"`,
			`generate --checkpoint runs/debug-1 --prompt "// New" --temperature 0.8 --top-p 0.9 --max-tokens 200`,
		}},
		{name: "eval", group: groupInspect, about: "measure a trained model's validation loss, or its accuracy on tasks", define: defineEval, examples: []string{
			"eval --checkpoint runs/debug-1",
			"eval --checkpoint runs/debug-1 --tasks lambada.jsonl,hellaswag.jsonl",
			"-np 2 eval --checkpoint runs/debug-1 --data corpus/ --json",
		}},
		{name: "convert", group: groupTrain, about: "convert a run, checkpoint or model to a Hugging Face model", define: defineConvert, examples: []string{
			"convert --from runs/debug-1 --to exported",
			"convert --from deepseek-fp8 --to deepseek-bf16 --dtype bf16",
		}},
		{name: "bench", group: groupMeasure, about: "measure kernels, token exchange, network links or training steps", subcommands: benchCommands(), examples: []string{
			"bench kernels --quick",
			"-np 4 bench exchange",
			"-np 2 bench train --flavor small",
			"bench kernels --match ^mxfp8_gemm --json kernels.jsonl",
		}},
		{name: "project", group: groupMeasure, about: "project training onto a cluster of GPUs or CPU hosts", define: defineProject, subcommands: projectCommands(), examples: []string{
			"project --gpu b200",
			"project explain --stack titan_deepep --precision mxfp8-experts --duplicate 2",
			"project validate",
			"project sweep --gpu gb200 --stack megatron_overlap --precision mxfp8 --seq 4096 --out sweep",
			"project hosts --train train.jsonl --link-gbits 100 --link-latency 10us",
		}},
		{name: "chaos", group: groupCheck, about: "train while ranks fail, and compare the result with an undisturbed run", define: defineChaos, subcommands: chaosCommands(), examples: []string{
			"-np 4 chaos --for 1m",
			"-np 4 chaos kill --count 50",
		}},
		{name: "data", group: groupTrain, about: "inspect or tokenize text, or train a tokenizer", subcommands: dataCommands(), examples: []string{
			"data inspect corpus/",
			"data train-tokenizer --data corpus/ --vocab 8192 --out tokenizer.json",
			"data tokenize --data corpus/ --tokenizer tokenizer.json --out corpus.arrow",
		}},
		{name: "inspect", group: groupInspect, args: "[FLAVOR|RUN|CHECKPOINT|FOLDER]", about: "print a model's parameters, memory, FLOPs and bytes per component", define: defineInspect, examples: []string{
			"inspect 671B",
			"-np 64 inspect 16B --seq 4096 --batch 64 --precision mxfp8",
			"inspect runs/debug-1 --json",
		}},
		{name: "layouts", group: groupInspect, about: "list the parallel layouts of some ranks with their memory and traffic", define: defineLayouts, examples: []string{
			"-np 8 layouts",
			"-np 16 layouts --flavor 16B --hosts 2",
			"-np 16 layouts --flavor small --dp-replicate 2 --ep 4",
			"-np 16 layouts --flavor small --json",
		}},
		{name: "routes", group: groupInspect, args: "[FILE [FILE]]", about: "print how tokens were routed, compare two runs, or export a trace", define: defineRoutes, examples: []string{
			"routes runs/debug-1/routes.arrow",
			"routes runs/bf16/routes.arrow runs/mxfp8/routes.arrow",
			"routes runs/debug-1/routes.arrow --steps 100..101 --export trace.csv",
		}},
		{name: "recipe", group: groupInspect, args: "NAME", about: "print a built-in low-precision recipe as a file for train --recipe", define: defineRecipe, examples: []string{
			"recipe nvfp4",
			"recipe nvfp4 --nvfp4.rht=false > my.toml",
		}},
		{name: "schedule", group: groupInspect, about: "print and check a pipeline schedule: its lists, bubbles and activations", define: defineSchedule, examples: []string{
			"schedule --name DualPipeV --pp 4 --microbatches 12",
			"schedule --name ZBVZeroBubble --pp 8 --microbatches 16 --costs 1,1.1,0.9",
			"schedule --name Interleaved1F1B --pp 4 --microbatches 8 --stages-per-rank 3 --json lists.json",
			"schedule --file lists.json",
		}},
		{name: "completion", group: groupAbout, args: "bash|zsh|fish", about: "print a shell completion script", define: defineCompletion, examples: []string{
			"completion bash > ~/.local/share/bash-completion/completions/launcher",
			"completion zsh > ~/.zfunc/_launcher",
			"completion fish > ~/.config/fish/completions/launcher.fish",
		}},
		{name: "version", group: groupAbout, about: "print the version, the build and the CPU's instruction tiers", define: defineVersion, examples: []string{
			"version",
		}},
		{name: "help", group: groupAbout, args: "[COMMAND [SUBCOMMAND]]", about: "list the commands, or describe one", define: defineHelp, examples: []string{
			"help train",
			"help bench exchange",
		}},
	}
}

// flags returns a command's flag set, and the action to run once the flags are set. A command
// without an action of its own has no flags.
func (c command) flags() (*flag.FlagSet, action) {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	if c.define == nil {
		return fs, nil
	}
	run := c.define(fs)
	return fs, run
}

// word returns the last word of a command's name.
func (c command) word() string { return c.name[strings.LastIndexByte(c.name, ' ')+1:] }

// family returns a command followed by its subcommands.
func (c command) family() []command { return append([]command{c}, c.subcommands...) }

// commandNames returns the last words of the commands' names.
func commandNames(cmds []command) []string {
	var all []string
	for _, c := range cmds {
		all = append(all, c.word())
	}
	return all
}

// choices returns the words that a command takes as its first argument, such as bash and zsh.
func (c command) choices() []string {
	first, _, _ := strings.Cut(c.args, " ")
	if first = strings.Trim(first, "[]"); !strings.Contains(first, "|") || first != strings.ToLower(first) {
		return nil
	}
	return strings.Split(first, "|")
}

// find returns the command with this last word.
func find(cmds []command, word string) (command, bool) {
	i := slices.IndexFunc(cmds, func(c command) bool { return c.word() == word })
	if i < 0 {
		return command{}, false
	}
	return cmds[i], true
}

// noArguments wraps the action of a command that takes flags only.
func noArguments(run action) action {
	return func(ctx context.Context, env env) error {
		if err := refuseArguments(env.args); err != nil {
			return err
		}
		return run(ctx, env)
	}
}
