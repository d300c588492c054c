package main

// What help prints: the commands in groups, or the examples of one command and its flags in groups.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"spmoe/launcher/system"
)

func defineHelp(*flag.FlagSet) func(context.Context, env) error {
	return func(_ context.Context, env env) error {
		cmds := commands()
		if len(env.args) == 0 {
			listCommands(cmds, env.out)
			return nil
		}
		cmd, ok := find(cmds, env.args[0])
		if !ok {
			return unknownCommand(cmds, env.args[0])
		}
		describe(cmd, env.out)
		return nil
	}
}

func listCommands(cmds []command, out io.Writer) {
	fmt.Fprint(out, "usage: launcher [flags] COMMAND [flags] [arguments]\n")
	width := system.TerminalWidth(out)
	for _, group := range groups() {
		fmt.Fprintf(out, "\n%s:\n", group)
		for _, c := range cmds {
			if c.group == group {
				printEntry(out, width, commandColumn, c.name, c.about)
			}
		}
	}
	fmt.Fprint(out, "\nexample: launcher -np 8 train --steps 100\n")
}

// describe prints all that there is to know about a command.
func describe(cmd command, out io.Writer) {
	fs, _ := cmd.flags()
	usage := cmd.name + " [flags] " + cmd.args
	fmt.Fprintf(out, "usage: launcher %s\n%s\n\nexamples:\n", strings.TrimSpace(usage), cmd.about)
	for _, e := range cmd.examples {
		fmt.Fprintf(out, "  launcher %s\n", e)
	}
	width := system.TerminalWidth(out)
	titles, flags := flagGroups(fs)
	for _, title := range titles {
		if len(flags[title]) > 0 {
			fmt.Fprintf(out, "\n%s:\n", title)
		}
		for _, f := range flags[title] {
			printEntry(out, width, flagColumn, flagUsage(f), flagHelp(f))
		}
	}
}

// The columns at which descriptions begin.
const (
	commandColumn = 16
	flagColumn    = 31
)

// printEntry prints a name and its description, which wraps at the width of a terminal. Width 0, or
// one too narrow for two columns, is no limit.
func printEntry(out io.Writer, width, column int, name, about string) {
	const narrowest = 20 // of descriptions
	line := fmt.Sprintf("  %-*s", column-2, name+" ")
	if width-column < narrowest {
		fmt.Fprintf(out, "%s%s\n", line, about)
		return
	}
	for word := range strings.SplitSeq(about, " ") {
		if len(line) > column && len(line)+len(word) > width {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", column)
		}
		line += word + " "
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// internal begins the usage of flags that are not for users: ranks get them from their launcher.
const internal = "(internal) "

// flagGroups returns the titles under which help prints flags, and the flags of each: a command's
// own, those of ranks, and those of each section of a configuration.
func flagGroups(fs *flag.FlagSet) (titles []string, flags map[string][]*flag.Flag) {
	ranks := flag.NewFlagSet("", flag.ContinueOnError)
	new(worldFlags).define(ranks)
	titles, flags = []string{"flags", "ranks"}, map[string][]*flag.Flag{}
	fs.VisitAll(func(f *flag.Flag) {
		title := "flags"
		if dot := strings.LastIndexByte(f.Name, '.'); dot >= 0 {
			title = f.Name[:dot]
		} else if ranks.Lookup(f.Name) != nil {
			title = "ranks"
		}
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
		if !strings.HasPrefix(f.Usage, internal) {
			flags[title] = append(flags[title], f)
		}
	})
	return titles, flags
}

// flagUsage is a flag and its value, as they are given.
func flagUsage(f *flag.Flag) string {
	value, _ := flag.UnquoteUsage(f)
	return strings.TrimSpace("--" + f.Name + " " + value)
}

// flagHelp is the description of a flag and its default.
func flagHelp(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	usage = strings.TrimPrefix(usage, value+" ")
	if f.DefValue != "" && f.DefValue != "false" {
		usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return usage
}
