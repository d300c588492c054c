package cli

// The help command and --help: an overview of the commands, or one command's usage, examples and
// flags.

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
)

// DefineHelp defines the flags of help.
func DefineHelp(fs *flag.FlagSet) Action {
	all := fs.Bool("all", false, "list all flags of a command")
	flavor := fs.String("flavor", "", "`NAME` of the flavor whose defaults are shown; default: debug, of --all and of groups all flavors")
	return func(_ context.Context, env Env) error {
		cmds, args := AllCommands(), env.Args
		if len(args) == 0 {
			listCommands(cmds, env.Out)
			return nil
		}
		cmd, ok := Find(cmds, args[0])
		if !ok {
			return UnknownCommand(cmds, "", args[0])
		}
		args = args[1:]
		if len(args) > 0 && len(cmd.Subcommands) > 0 {
			if cmd, ok = Find(cmd.Subcommands, args[0]); !ok {
				parent, _ := Find(cmds, env.Args[0])
				return UnknownCommand(parent.Subcommands, parent.Name, args[0])
			}
			args = args[1:]
		}
		topic := ""
		if *all {
			topic = everything
		} else if len(args) > 0 {
			topic = args[0]
			if names := cmd.Topics(); len(names) == 0 {
				return fmt.Errorf("help %s %.*q: its flags have no groups", cmd.Name, LongestWord, topic)
			} else if !slices.Contains(names, topic) {
				return fmt.Errorf("help %s %.*q: use %s, or --all", cmd.Name, LongestWord, topic, OneOf(names))
			}
		}
		Describe(cmd, topic, *flavor, env.Out)
		return nil
	}
}

func listCommands(cmds []Command, out io.Writer) {
	fmt.Fprint(out, "usage: launcher [flags] COMMAND [flags] [arguments]\n")
	width := system.TerminalWidth(out)
	for _, group := range groups() {
		fmt.Fprintf(out, "\n%s:\n", group)
		for _, c := range cmds {
			if c.Group == group {
				PrintEntry(out, width, commandColumn, c.Name, c.About)
			}
		}
	}
	fmt.Fprint(out, "\nlauncher help COMMAND lists the flags of a command; launcher --version describes this build and CPU\nexample: launcher -np 8 train --steps 100\n")
}

// usage returns the line that shows how a command is typed.
func (c Command) usage() string {
	line := c.Name
	switch {
	case len(c.Subcommands) == 0:
		line += " [flags] " + c.Args
	case c.Define == nil:
		line += " SUBCOMMAND [flags]"
	default:
		line += " [SUBCOMMAND] [flags]"
	}
	return strings.TrimSpace(line)
}

// everything is the topic of all flags.
const everything = "all"

// Describe prints a command's usage, examples, subcommands and flags. Of many flags it prints those
// that most people use, or those of a topic. Defaults are those of a flavor or, if it is empty, of
// all flavors.
func Describe(cmd Command, topic, flavor string, out io.Writer) {
	width := system.TerminalWidth(out)
	if topic == "" {
		fmt.Fprintf(out, "usage: launcher %s\n%s\n", cmd.usage(), cmd.About)
		if len(cmd.Examples) > 0 {
			fmt.Fprint(out, "\nexamples:\n")
		}
		for _, e := range cmd.Examples {
			fmt.Fprintf(out, "  launcher %s\n", e)
		}
		if len(cmd.Subcommands) > 0 {
			fmt.Fprint(out, "\nsubcommands:\n")
		}
		for _, c := range cmd.Subcommands {
			PrintEntry(out, width, commandColumn+2, c.word(), c.About)
		}
	}
	names := cmd.Topics()
	if topic == "" {
		flavor = cmp.Or(flavor, DefaultFlavor)
	}
	for _, s := range cmd.sections() {
		shown := topic == everything || topic == s.title || topic == "" && (len(names) == 0 || s.title == ownFlags)
		if s.title == common {
			shown = topic == "" && len(names) > 0
		}
		if !shown {
			continue
		}
		if s.title == ownFlags && len(cmd.Subcommands) > 0 {
			s.title += " without a subcommand"
		}
		fmt.Fprintf(out, "\n%s:\n", s.title)
		for _, f := range s.flags {
			PrintEntry(out, width, flagColumn, FlagUsage(f), flagHelp(f, flavor))
		}
	}
	if topic == "" && len(names) > 0 {
		fmt.Fprintf(out, "\nmore flags: launcher help %s GROUP (%s), or --all; each is a key of --config too\n",
			cmd.Name, strings.Join(names, ", "))
	}
	if len(cmd.Subcommands) > 0 {
		fmt.Fprintf(out, "\nlauncher help %s SUBCOMMAND lists the flags of a subcommand\n", cmd.Name)
	}
}

// The columns at which descriptions begin.
const (
	commandColumn = 16
	flagColumn    = 31
)

// PrintEntry prints a name and its description, which wraps at the terminal's width. There is no
// limit if width is 0 or too narrow for two columns.
func PrintEntry(out io.Writer, width, column int, name, about string) {
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

// Internal begins the usage of flags that are not for users: a launcher passes them to its ranks.
const Internal = "(internal) "

// Titles of flags: of those that most people use, and of those in no topic.
const (
	common   = "common flags"
	ownFlags = "flags"
)

// CommonFlags are the flags that help shows first, of a command with more than fewFlags.
const CommonFlags = "np flavor data tokenizer steps batch micro-batch seq precision optimizer.lr recompute seed ep pp ranks " +
	"out resume save-every eval-every dry-run"

const fewFlags = 40

// flagGroups are the groups of the flags of commands with many, in the order of the help. The group
// of a setting is in the tag of its field in [config.Config]. That of another flag stands before
// its usage, as in "(ranks) `N` ranks to start".
var flagGroups = []string{"run", "layout", "ranks", "saving", "evaluation", "output", "routes", "guard", "model", "optimizer", "formats"}

// settingGroups has the groups of settings, by the names of their flags.
var settingGroups = sync.OnceValue(func() map[string]string {
	groups := map[string]string{}
	config.EachSetting(config.Config{}, func(key config.Key, _ any) {
		groups[strings.ReplaceAll(key.Name, "_", "-")] = key.Group
	})
	return groups
})

// splitUsage returns the group of a flag, the placeholder of its value, and its description, which
// stands alone.
func splitUsage(f *flag.Flag) (group, value, about string) {
	bare := *f
	if rest, ok := strings.CutPrefix(f.Usage, "("); ok {
		group, bare.Usage, _ = strings.Cut(rest, ") ")
	} else {
		group = settingGroups()[f.Name]
	}
	value, about = flag.UnquoteUsage(&bare)
	return cmp.Or(group, ownFlags), value, strings.TrimPrefix(about, value+" ")
}

// section is a part of the flags of a command.
type section struct {
	title string
	flags []*flag.Flag
}

// sections returns the flags of a command that are for users: the common ones again, those in no
// group, and those of each group.
func (c Command) sections() (all []section) {
	fs, _ := c.Flags()
	for _, title := range slices.Concat([]string{common, ownFlags}, flagGroups) {
		s := section{title: title}
		fs.VisitAll(func(f *flag.Flag) {
			group, _, _ := splitUsage(f)
			if group == title || title == common && slices.Contains(strings.Fields(CommonFlags), f.Name) {
				s.flags = append(s.flags, f)
			}
		})
		if len(s.flags) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// Topics returns the topics of the command's flags, if there are many flags.
func (c Command) Topics() (names []string) {
	n := 0
	for _, s := range c.sections() {
		if s.title != common {
			n += len(s.flags)
		}
		if s.title != common && s.title != ownFlags {
			names = append(names, s.title)
		}
	}
	if n <= fewFlags {
		return nil
	}
	return names
}

// FlagUsage returns a flag and the placeholder of its value, as they are typed.
func FlagUsage(f *flag.Flag) string {
	_, value, _ := splitUsage(f)
	return strings.TrimSpace("--" + f.Name + " " + value)
}

// flagHelp returns the description of a flag, and its default, in a flavor if that is not empty.
func flagHelp(f *flag.Flag, flavor string) string {
	_, _, usage := splitUsage(f)
	initial := f.DefValue
	if s, ok := f.Value.(*Setting); ok {
		initial = s.initial(flavor)
	}
	if initial != "" && initial != "false" {
		usage += fmt.Sprintf(" (default %s)", initial)
	}
	return usage
}

// FlavorOf returns the flavor that arguments name, or the default one.
func FlavorOf(args []string) string {
	for i, arg := range args {
		name, _ := FlagName(arg)
		_, value, ok := strings.Cut(arg, "=")
		switch {
		case name != "flavor":
		case ok:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return DefaultFlavor
}
