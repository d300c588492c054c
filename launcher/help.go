package main

// What help prints: the commands in groups, and of one command its examples and its flags, in groups too.

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"spmoe/launcher/system"
)

// page is what help says of a command beside its own description.
type page struct {
	group    string
	examples []string // command lines, behind "launcher "
}

// The groups of commands, in the order in which help has them.
const (
	toTrain   = "train"
	toLook    = "look at runs and models"
	toCheck   = "check"
	toMeasure = "measure"
	toKnow    = "about launcher itself"
)

func pages() map[string]page {
	return map[string]page{
		"train": {toTrain, []string{
			"-np 8 train --steps 100",
			"-np 4 train --flavor small --data corpus/ --precision mxfp8 --save-every 500 --out runs/small",
			"-np 4 train --ranks process --spares 1 --data corpus/",
			"-np 4 train --resume --out runs/small",
			"-np 8 train --flavor 16B --dry-run",
		}},
		"convert": {toTrain, []string{
			"convert --from runs/debug-1 --to exported",
			"convert --from deepseek-fp8 --to deepseek-bf16 --dtype bf16",
		}},
		"data": {toTrain, []string{
			"data inspect corpus/",
			"data train-tokenizer --data corpus/ --vocab 8192 --out tokenizer.json",
			"data tokenize --data corpus/ --tokenizer tokenizer.json --out corpus.arrow",
		}},
		"generate": {toLook, []string{
			`generate --prompt "func main"`,
			`generate --checkpoint runs/debug-1 --prompt "// New" --temperature 0.8 --top-p 0.9 --max-tokens 200`,
		}},
		"eval": {toLook, []string{
			"eval --checkpoint runs/debug-1",
			"-np 2 eval --checkpoint runs/debug-1 --data corpus/ --json",
		}},
		"inspect": {toLook, []string{
			"inspect 671B",
			"-np 64 inspect 16B --seq 4096 --batch 64 --precision mxfp8",
			"inspect runs/debug-1 --json",
		}},
		"report": {toLook, []string{"report runs/debug-1"}},
		"checkpoint": {toLook, []string{
			"checkpoint ls runs/debug-1",
			"checkpoint verify runs/debug-1",
			"checkpoint export runs/debug-1 --out model.safetensors",
		}},
		"compare": {toCheck, []string{
			"compare --quick",
			"-np 4 compare --precision bf16,mxfp8 --seeds 3 --out runs/compare-1",
		}},
		"check": {toCheck, []string{
			"check golden/",
			"-np 2 check golden/ mx.safetensors",
		}},
		"chaos": {toCheck, []string{
			"-np 4 chaos --for 1m",
			"-np 4 chaos kill --count 50 --json faults.jsonl",
		}},
		"bench": {toMeasure, []string{
			"bench kernels --quick",
			"-np 4 bench exchange",
			"bench kernels --match ^mxfp8_gemm --json kernels.jsonl",
		}},
		"project": {toMeasure, []string{
			"project --gpu b200",
			"project explain --stack titan_deepep --precision mxfp8-experts --duplicate 2",
			"project validate",
			"project sweep --gpu gb200 --stack megatron_overlap --precision mxfp8 --seq 4096 --out sweep",
			"project hosts --train train.jsonl --link-gbits 100 --link-latency 10us",
		}},
		"completion": {toKnow, []string{
			"completion bash > ~/.local/share/bash-completion/completions/launcher",
			"completion zsh > ~/.zfunc/_launcher",
			"completion fish > ~/.config/fish/completions/launcher.fish",
		}},
		"version": {toKnow, []string{"version"}},
	}
}

// help prints the commands, or what there is to know of one.
func help(cmds []command, args []string, out io.Writer) error {
	if len(args) == 0 {
		listCommands(cmds, out)
		return nil
	}
	cmd, ok := find(cmds, args[0])
	if !ok {
		return unknownCommand(cmds, args[0])
	}
	fs, _ := cmd.flags()
	fmt.Fprintf(out, "usage: launcher %s\n%s\n", strings.TrimSpace(cmd.name+" [flags] "+cmd.args), cmd.about)
	if examples := pages()[cmd.name].examples; len(examples) > 0 {
		fmt.Fprint(out, "\nexamples:\n")
		for _, e := range examples {
			fmt.Fprintf(out, "  launcher %s\n", e)
		}
	}
	width := system.TerminalWidth(out)
	for _, g := range flagGroups(fs) {
		fmt.Fprintf(out, "\n%s:\n", g.title)
		for _, f := range g.flags {
			entry(out, width, flagColumn, flagUsage(f), flagHelp(f))
		}
	}
	return nil
}

func listCommands(cmds []command, out io.Writer) {
	fmt.Fprint(out, "usage: launcher [flags] COMMAND [flags] [arguments]\n")
	width := system.TerminalWidth(out)
	all := pages()
	for _, group := range []string{toTrain, toLook, toCheck, toMeasure, toKnow} {
		fmt.Fprintf(out, "\n%s:\n", group)
		for _, c := range cmds {
			if all[c.name].group == group {
				entry(out, width, commandColumn, c.name, c.about)
			}
		}
	}
	entry(out, width, commandColumn, "help COMMAND", "a command's flags, with examples")
	fmt.Fprint(out, "\nexample: launcher -np 8 train --steps 100\n")
}

// The columns at which descriptions begin.
const (
	commandColumn = 16
	flagColumn    = 31
)

// entry prints a name and what it is, in as many lines as a terminal of so many columns needs; 0: in one.
func entry(out io.Writer, width, column int, name, about string) {
	line := fmt.Sprintf("  %-*s", column-2, name+" ")
	indent := strings.Repeat(" ", column)
	const least = 20
	if width-column < least {
		fmt.Fprintf(out, "%s%s\n", line, about)
		return
	}
	for word := range strings.SplitSeq(about, " ") {
		if len(line)+len(word) > width && strings.TrimSpace(line) != "" && len(line) > column {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// internal begins the usage of flags that are no business of users.
const internal = "(internal) "

// flagGroup is flags that belong together.
type flagGroup struct {
	title string
	flags []*flag.Flag
}

// flagGroups returns the flags of a command: its own, those of ranks, and those of each section of a configuration.
func flagGroups(fs *flag.FlagSet) []flagGroup {
	ranks := flag.NewFlagSet("", flag.ContinueOnError)
	new(worldFlags).define(ranks)
	groups := []flagGroup{{title: "flags"}, {title: "ranks"}}
	fs.VisitAll(func(f *flag.Flag) {
		if strings.HasPrefix(f.Usage, internal) {
			return
		}
		title := "flags"
		if dot := strings.LastIndexByte(f.Name, '.'); dot >= 0 {
			title = f.Name[:dot]
		} else if ranks.Lookup(f.Name) != nil {
			title = "ranks"
		}
		i := slices.IndexFunc(groups, func(g flagGroup) bool { return g.title == title })
		if i < 0 {
			i = len(groups)
			groups = append(groups, flagGroup{title: title})
		}
		groups[i].flags = append(groups[i].flags, f)
	})
	return slices.DeleteFunc(groups, func(g flagGroup) bool { return len(g.flags) == 0 })
}

// flagUsage is a flag and its value, as they are given.
func flagUsage(f *flag.Flag) string {
	value, _ := flag.UnquoteUsage(f)
	return strings.TrimSpace("--" + f.Name + " " + value)
}

func flagHelp(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	usage = strings.TrimPrefix(usage, value+" ")
	if f.DefValue != "" && f.DefValue != "false" {
		usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return usage
}
