package main

// The help command and --help: an overview of the commands, or one command's usage, examples and
// flags.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"spmoe/launcher/system"
)

func defineHelp(*flag.FlagSet) action {
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
		if len(env.args) > 1 && len(cmd.subcommands) > 0 {
			sub, ok := find(cmd.subcommands, env.args[1])
			if !ok {
				return cmd.unknownSubcommand(env.args[1])
			}
			cmd = sub
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
	fmt.Fprint(out, "\nlauncher help COMMAND lists the flags of a command\nexample: launcher -np 8 train --steps 100\n")
}

// usage returns the line that shows how a command is typed.
func (c command) usage() string {
	line := c.name
	switch {
	case len(c.subcommands) == 0:
		line += " [flags] " + c.args
	case c.define == nil:
		line += " SUBCOMMAND [flags]"
	default:
		line += " [SUBCOMMAND] [flags]"
	}
	return strings.TrimSpace(line)
}

// describe prints a command's usage, examples, subcommands and flags.
func describe(cmd command, out io.Writer) {
	fmt.Fprintf(out, "usage: launcher %s\n%s\n", cmd.usage(), cmd.about)
	width := system.TerminalWidth(out)
	if len(cmd.examples) > 0 {
		fmt.Fprint(out, "\nexamples:\n")
	}
	for _, e := range cmd.examples {
		fmt.Fprintf(out, "  launcher %s\n", e)
	}
	if len(cmd.subcommands) > 0 {
		fmt.Fprint(out, "\nsubcommands:\n")
	}
	for _, c := range cmd.subcommands {
		printEntry(out, width, commandColumn+2, c.word(), c.about)
	}
	fs, _ := cmd.flags()
	titles, flags := flagGroups(fs)
	for _, title := range titles {
		if len(flags[title]) > 0 {
			heading := title
			if title == ownFlags && len(cmd.subcommands) > 0 {
				heading += " without a subcommand"
			}
			fmt.Fprintf(out, "\n%s:\n", heading)
		}
		for _, f := range flags[title] {
			printEntry(out, width, flagColumn, flagUsage(f), flagHelp(f))
		}
	}
	if len(cmd.subcommands) > 0 {
		fmt.Fprintf(out, "\nlauncher help %s SUBCOMMAND lists the flags of a subcommand\n", cmd.name)
	}
}

// The columns at which descriptions begin.
const (
	commandColumn = 16
	flagColumn    = 31
)

// printEntry prints a name and its description, which wraps at the terminal's width. There is no
// limit if width is 0 or too narrow for two columns.
func printEntry(out io.Writer, width, column int, name, about string) {
	const narrowest = 20 // columns of a description
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

// internal begins the usage of flags that are not for users: a launcher passes them to its ranks.
const internal = "(internal) "

// ownFlags is the title of the flags that are neither of ranks nor of the configuration's sections.
const ownFlags = "flags"

// flagGroups returns the titles under which help prints flags, and the flags of each title. There
// is one group for the command's own flags, one for ranks and one per section of the configuration.
func flagGroups(fs *flag.FlagSet) (titles []string, flags map[string][]*flag.Flag) {
	ranks := flag.NewFlagSet("", flag.ContinueOnError)
	new(rankFlags).define(ranks)
	titles, flags = []string{ownFlags, "ranks"}, map[string][]*flag.Flag{}
	fs.VisitAll(func(f *flag.Flag) {
		title := ownFlags
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

// flagUsage returns a flag and the placeholder of its value, as they are typed.
func flagUsage(f *flag.Flag) string {
	value, _ := flag.UnquoteUsage(f)
	return strings.TrimSpace("--" + f.Name + " " + value)
}

// flagHelp returns the description of a flag, and its default. The usage is the placeholder in
// backquotes followed by a description that stands alone.
func flagHelp(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	usage = strings.TrimPrefix(usage, value+" ")
	if f.DefValue != "" && f.DefValue != "false" {
		usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return usage
}
