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

	"spmoe/launcher/system"
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
			return UnknownCommand(cmds, args[0])
		}
		args = args[1:]
		if len(args) > 0 && len(cmd.Subcommands) > 0 {
			if cmd, ok = Find(cmd.Subcommands, args[0]); !ok {
				parent, _ := Find(cmds, env.Args[0])
				return parent.unknownSubcommand(args[0])
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
	fmt.Fprint(out, "\nlauncher help COMMAND lists the flags of a command\nexample: launcher -np 8 train --steps 100\n")
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

type topic struct{ name, flags string }

// topics are the groups of flags of commands with many, by name or by section.
var topics = []topic{
	{"run", "flavor config recipe precision data data-field data-rules document-mask tokenizer end-token init-from " +
		"steps schedule-steps batch micro-batch chain-passes seq seed recompute dry-run allow-changes"},
	{"layout", "dp-replicate dp-shard cp tp ep ep-capacity ep-combine-backward ep-dispatch ep-exchange fsdp " +
		"pp pp-layout pp-microbatches pp-overlap pp-schedule pp-stages-per-rank threads"},
	{"ranks", "bind-to get-stack-traces heap-mib host-timeout n np ranks restarts silence spares tag-output timeout"},
	{"saving", "out resume keep save-async save-every save-retry"},
	{"evaluation", "ema eval-every eval-sequences eval-tasks sample-every sample-prompt sample-tokens"},
	{"output", "color log-every log-format plain http http-pprof http-stay profile cpuprofile trace report project " +
		"record-every record-ratios"},
	{"routes", "record-routes replay-routes replay-weights"},
	{"guard", "guard."},
	{"model", "model. model.yarn."},
	{"optimizer", "optimizer."},
	{"formats", "sum mx. fp8. nvfp4."},
}

// section is a part of the flags of a command.
type section struct {
	title string
	flags []*flag.Flag
}

// sections returns the flags of a command that are for users: the common ones again, those in no
// topic, and those of each topic.
func (c Command) sections() (all []section) {
	fs, _ := c.Flags()
	add := func(title string, has func(name string) bool) {
		s := section{title: title}
		fs.VisitAll(func(f *flag.Flag) {
			if has(f.Name) && !strings.HasPrefix(f.Usage, Internal) {
				s.flags = append(s.flags, f)
			}
		})
		if len(s.flags) > 0 {
			all = append(all, s)
		}
	}
	of := func(list, name string) bool {
		section := name[:strings.LastIndexByte(name, '.')+1]
		return slices.Contains(strings.Fields(list), cmp.Or(section, name))
	}
	add(common, func(name string) bool { return slices.Contains(strings.Fields(CommonFlags), name) })
	add(ownFlags, func(name string) bool {
		return !slices.ContainsFunc(topics, func(t topic) bool { return of(t.flags, name) })
	})
	for _, t := range topics {
		add(t.name, func(name string) bool { return of(t.flags, name) })
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
	value, _ := flag.UnquoteUsage(f)
	return strings.TrimSpace("--" + f.Name + " " + value)
}

// flagHelp returns the description of a flag, and its default, in a flavor if that is not empty.
// The usage is the placeholder in backquotes followed by a description that stands alone.
func flagHelp(f *flag.Flag, flavor string) string {
	value, usage := flag.UnquoteUsage(f)
	usage = strings.TrimPrefix(usage, value+" ")
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
