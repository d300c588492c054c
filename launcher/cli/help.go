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
	all := fs.Bool("all", false, "list all flags and keys of a command, with all that there is to say about them")
	flavor := fs.String("flavor", DefaultFlavor, "`NAME` of the flavor whose defaults are shown")
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
		if args = args[1:]; len(args) > 0 && len(cmd.Subcommands) > 0 && args[0] != keyTopic {
			parent := cmd
			if cmd, ok = Find(cmd.Subcommands, args[0]); !ok {
				return UnknownCommand(parent.Subcommands, parent.Name, args[0])
			}
			args = args[1:]
		}
		if !slices.Contains(Flavors(), *flavor) {
			return Unknown("unknown flavor", *flavor, Flavors(), Nearest(*flavor, Flavors()))
		}
		keys := len(args) > 0 && args[0] == keyTopic
		if keys || *all {
			return describeAll(cmd, !keys, *flavor, env.Out)
		}
		if err := refuseArguments(args); err != nil {
			return err
		}
		Describe(cmd, *flavor, env.Out)
		return nil
	}
}

// keyTopic is the word after a command that asks for the keys of its --set.
const keyTopic = "keys"

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

// Describe prints a command's usage, examples, subcommands and, with a few words each, the flags
// that most people use. Defaults are those of a flavor.
func Describe(cmd Command, flavor string, out io.Writer) {
	width := system.TerminalWidth(out)
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
	fs, _ := cmd.Flags()
	n, gap := 0, "\n"
	for _, s := range sections(fs) {
		n += len(s.flags)
	}
	for _, s := range sections(fs) {
		if n > fewFlags {
			s.flags = slices.DeleteFunc(s.flags, func(f *flag.Flag) bool {
				return s.title != ownFlags && !slices.Contains(strings.Fields(commonFlags), f.Name)
			})
		}
		if len(s.flags) > 0 {
			s.print(gap, describeFlag, flavor, out)
			gap = "" // headings are enough in a short list
		}
	}
	more := "launcher help " + cmd.Name
	if n > 0 {
		fmt.Fprintf(out, "\n%s --all says more", more)
		if n > fewFlags {
			fmt.Fprintf(out, " and lists all %d flags", n)
		}
		if fs.Lookup("set") != nil {
			fmt.Fprintf(out, ", %s %s the keys of --set", more, keyTopic)
		}
		fmt.Fprintln(out)
	}
	if len(cmd.Subcommands) > 0 {
		fmt.Fprintf(out, "%s SUBCOMMAND lists the flags of a subcommand\n", more)
	}
}

// describeAll prints all keys of a command's --set without a flag and, if flags, all flags before.
func describeAll(cmd Command, flags bool, flavor string, out io.Writer) error {
	fs, _ := cmd.Flags()
	for _, s := range sections(fs) {
		if flags {
			s.print("\n", fullUsage, flavor, out)
		}
	}
	set := fs.Lookup("set")
	if set == nil && !flags {
		return fmt.Errorf("%s has no --set: its flags are all that there is to set", cmd.Name)
	} else if set == nil {
		return nil
	}
	for _, s := range sections(set.Value.(*Keys).all) {
		s.title += ", with --set"
		s.flags = slices.DeleteFunc(s.flags, func(f *flag.Flag) bool { return fs.Lookup(f.Name) != nil })
		s.keys = true
		s.print("\n", fullUsage, flavor, out)
	}
	return nil
}

// print prints the flags or keys of a section, unless there are none, as about describes them. gap
// stands before its title.
func (s section) print(gap string, about func(*flag.Flag) string, flavor string, out io.Writer) {
	for i, f := range s.flags {
		if i == 0 {
			fmt.Fprintf(out, "%s%s:\n", gap, s.title)
		}
		_, value, _ := splitUsage(f)
		name := "--" + f.Name + " " + value
		if s.keys {
			name = dottedKey(f) + "=" + cmp.Or(value, "true|false")
		}
		PrintEntry(out, system.TerminalWidth(out), flagColumn, strings.TrimSpace(name), about(f)+defaultOf(f, flavor))
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

// ownFlags is the title of the flags in no group.
const ownFlags = "flags"

// commonFlags are the flags that help shows first, of a command with more than fewFlags.
const commonFlags = "np flavor data tokenizer steps batch micro-batch seq precision optimizer.lr recompute set ep pp ranks " +
	"out resume save-every eval-every dry-run"

const fewFlags = 24

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

// section is a part of the flags of a command, or of the keys of its --set.
type section struct {
	title string
	flags []*flag.Flag
	keys  bool
}

// sections returns the flags that are for users: those in no group, and those of each group.
func sections(fs *flag.FlagSet) (all []section) {
	for _, title := range slices.Concat([]string{ownFlags}, flagGroups) {
		s := section{title: title}
		fs.VisitAll(func(f *flag.Flag) {
			if group, _, _ := splitUsage(f); group == title {
				s.flags = append(s.flags, f)
			}
		})
		if len(s.flags) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// fullUsage returns the description of a flag.
func fullUsage(f *flag.Flag) string {
	_, _, usage := splitUsage(f)
	return usage
}

// defaultOf returns what help says of a flag's default in a flavor.
func defaultOf(f *flag.Flag, flavor string) string {
	initial := f.DefValue
	if s, ok := f.Value.(*Setting); ok {
		initial = s.initial(flavor)
	}
	if initial == "" || initial == "false" {
		return ""
	}
	return fmt.Sprintf(" (default %s)", initial)
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
