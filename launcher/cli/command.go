package cli

import (
	"context"
	"flag"
	"slices"
	"strings"
)

// RunsOnCluster reports whether a command can run as one rank of many hosts.
func (c Command) RunsOnCluster() bool {
	return slices.Contains([]string{"train", "bench exchange", "help"}, c.Name)
}

// Action runs a command after its flags are parsed.
type Action func(context.Context, Env) error

// Command is a command or a subcommand. Each one defines exactly the flags that its code reads.
type Command struct {
	Name        string // as typed: "train", "bench link"
	Group       string // its heading in the overview; subcommands have none
	Args        string // what follows the flags: "PATH..."
	About       string
	Define      func(fs *flag.FlagSet) Action // nil: one of the subcommands must be given
	Subcommands []Command
	Examples    []string // command lines without the leading "launcher"
	Outlives    bool     // goes on when the reader of its output has gone
}

// The groups of commands, in the order in which help lists them.
const (
	GroupTrain   = "train"
	GroupInspect = "inspect runs and models"
	GroupCheck   = "check"
	GroupMeasure = "measure"
	GroupAbout   = "about launcher"
)

func groups() []string {
	return []string{GroupTrain, GroupInspect, GroupCheck, GroupMeasure, GroupAbout}
}

// AllCommands is the table of commands.
var AllCommands func() []Command

// Flags returns a command's flag set, and the action to run once the flags are set. A command
// without an action of its own has no flags.
func (c Command) Flags() (*flag.FlagSet, Action) {
	fs := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	if c.Define == nil {
		return fs, nil
	}
	run := c.Define(fs)
	return fs, run
}

// word returns the last word of a command's name.
func (c Command) word() string { return c.Name[strings.LastIndexByte(c.Name, ' ')+1:] }

// Family returns a command followed by its subcommands.
func (c Command) Family() []Command { return append([]Command{c}, c.Subcommands...) }

// commandNames returns the last words of the commands' names.
func commandNames(cmds []Command) []string {
	var all []string
	for _, c := range cmds {
		all = append(all, c.word())
	}
	return all
}

// Find returns the command with this last word.
func Find(cmds []Command, word string) (Command, bool) {
	i := slices.IndexFunc(cmds, func(c Command) bool { return c.word() == word })
	if i < 0 {
		return Command{}, false
	}
	return cmds[i], true
}

// NoArguments wraps the action of a command that takes flags only.
func NoArguments(run Action) Action {
	return func(ctx context.Context, env Env) error {
		if err := refuseArguments(env.Args); err != nil {
			return err
		}
		return run(ctx, env)
	}
}
