package cli

// The help command and --help: an overview of the commands, or one command's usage, examples and
// flags.

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"spmoe/launcher/report"
	"spmoe/launcher/trainer/config"
)

// DefineHelp defines the flags of help.
func DefineHelp(fs *flag.FlagSet) Action {
	all := fs.Bool("all", false, "list all flags and keys of a command, with all that there is to say about them")
	return func(_ context.Context, env Env) error {
		if len(env.Args) == 0 {
			listCommands(AllCommands(), env.Out)
			return nil
		}
		cmd, args, err := findCommand(env.Args)
		if err := errors.Join(err, refuseArguments(args)); err != nil {
			return err
		}
		if *all {
			describeAll(cmd, env.Out)
		} else {
			Describe(cmd, env.Out)
		}
		return nil
	}
}

// findCommand returns the command or the subcommand that the first words name, and the others.
func findCommand(words []string) (cmd Command, rest []string, err error) {
	cmd, ok := Find(AllCommands(), words[0])
	if !ok {
		return cmd, nil, UnknownCommand(AllCommands(), "", words[0])
	}
	if rest = words[1:]; len(rest) == 0 || len(cmd.Subcommands) == 0 {
		return cmd, rest, nil
	}
	sub, ok := Find(cmd.Subcommands, rest[0])
	if !ok {
		return cmd, nil, UnknownCommand(cmd.Subcommands, cmd.Name, rest[0])
	}
	return sub, rest[1:], nil
}

func listCommands(cmds []Command, out io.Writer) {
	fmt.Fprintln(out, "usage: launcher [flags] COMMAND [flags] [arguments]")
	for _, group := range groups() {
		fmt.Fprintf(out, "%s:\n", group)
		for _, c := range cmds {
			if c.Group == group {
				printEntry(out, commandColumn, c.Name, c.About)
			}
		}
	}
	fmt.Fprint(out, "launcher help COMMAND describes a command; launcher --version describes this build and CPU\nexample: launcher -np 8 train --steps 100\n")
}

// printUsage prints how a command is typed, what it does, and some of its examples.
func (c Command) printUsage(examples int, out io.Writer) {
	line := c.Name
	switch {
	case len(c.Subcommands) == 0:
		line += " [flags] " + c.Args
	case c.Define == nil:
		line += " SUBCOMMAND [flags]"
	default:
		line += " [SUBCOMMAND] [flags]"
	}
	fmt.Fprintf(out, "usage: launcher %s\n%s\n", strings.TrimSpace(line), c.About)
	for _, e := range c.Examples[:min(examples, len(c.Examples))] {
		fmt.Fprintf(out, "  launcher %s\n", e)
	}
}

// pageLines is the height of a terminal, which the help of a command fits.
const pageLines = 24

// Describe prints a command's usage, subcommands and, with a few words each, the flags that most
// people use. Examples fill the page.
func Describe(cmd Command, out io.Writer) {
	fs, _ := cmd.Flags()
	shown, n := cmd.commonFlags(fs)
	cmd.printUsage(max(pageLines-3-len(cmd.Subcommands)-len(shown), 1), out)
	for _, c := range cmd.Subcommands {
		printEntry(out, commandColumn+2, c.word(), c.About)
	}
	section{flags: shown}.print("", describeFlag, out)
	more := "launcher help " + cmd.Name
	switch {
	case fs.Lookup("set") != nil:
		fmt.Fprintf(out, "%s --all lists all %d flags and the keys of --set\n", more, n)
	case n > 0:
		fmt.Fprintf(out, "%s --all says more about %s\n", more, report.Plural(n, "flag"))
	default:
		fmt.Fprintf(out, "%s SUBCOMMAND lists the flags of a subcommand\n", more)
	}
}

// commonFlags returns the flags of a command that most people use, at most twenty, in the order in
// which help shows them, and the number of all flags.
func (c Command) commonFlags(fs *flag.FlagSet) (common []*flag.Flag, n int) {
	for _, s := range sections(fs) {
		common, n = append(common, s.flags...), n+len(s.flags)
	}
	if most := min(20, pageLines-4-len(c.Subcommands)); n > most {
		words := strings.Fields(commonFlags)
		common = slices.DeleteFunc(common, func(f *flag.Flag) bool { return !slices.Contains(words, f.Name) })
		slices.SortStableFunc(common, func(a, b *flag.Flag) int {
			return cmp.Compare(slices.Index(words, a.Name), slices.Index(words, b.Name))
		})
		common = common[:min(len(common), most)]
	}
	return common, n
}

// describeAll prints all examples and flags of a command, and all keys of its --set without a flag.
func describeAll(cmd Command, out io.Writer) {
	fs, _ := cmd.Flags()
	cmd.printUsage(len(cmd.Examples), out)
	for _, s := range sections(fs) {
		s.print("\n"+s.title+":\n", fullUsage, out)
	}
	set := fs.Lookup("set")
	if set == nil {
		return
	}
	for _, s := range sections(set.Value.(*Keys).all) {
		s.flags = slices.DeleteFunc(s.flags, func(f *flag.Flag) bool { return fs.Lookup(f.Name) != nil })
		s.keys = true
		s.print("\n"+s.title+", with --set:\n", fullUsage, out)
	}
}

// print prints the flags or keys of a section after its title, unless there are none, as about
// describes them.
func (s section) print(title string, about func(*flag.Flag) string, out io.Writer) {
	for i, f := range s.flags {
		if i == 0 {
			fmt.Fprint(out, title)
		}
		_, value, _ := splitUsage(f)
		name := "--" + f.Name + " " + value
		if s.keys {
			name = dottedKey(f) + "=" + cmp.Or(value, "true|false")
		}
		printEntry(out, flagColumn, strings.TrimSpace(name), about(f)+defaultOf(f))
	}
}

// The columns at which descriptions begin.
const (
	commandColumn = 17
	flagColumn    = 31
)

// printEntry prints a name and its description.
func printEntry(out io.Writer, column int, name, about string) {
	fmt.Fprintf(out, "  %-*s%s\n", column-2, name+" ", about)
}

// Internal begins the usage of flags that are not for users: a launcher passes them to its ranks.
const Internal = "(internal) "

// ownFlags is the title of the flags in no group.
const ownFlags = "flags"

// commonFlags are the flags that help shows of a command with many, in its order: those of all
// commands that train, then those of project.
const commonFlags = "np flavor json quick seeds margin jobs layouts schedule hosts verify html data tokenizer steps batch micro-batch seq " +
	"precision optimizer.lr recompute set ep pp ranks out resume save-every eval-every dry-run cp tp pp-schedule " +
	"model gpu gpus vp software exchange overlap routing imbalance"

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
		all = append(all, s)
	}
	return all
}

// fullUsage returns the description of a flag.
func fullUsage(f *flag.Flag) string {
	_, _, usage := splitUsage(f)
	return usage
}

// describeFlag returns the first clause of a flag's help.
func describeFlag(f *flag.Flag) string {
	usage := fullUsage(f)
	if end := strings.IndexAny(usage, ";:("); end > 0 {
		usage = strings.TrimSpace(usage[:end])
	}
	return usage
}

// defaultOf returns what help says of a flag's default, which is that of the default flavor.
func defaultOf(f *flag.Flag) string {
	initial := f.DefValue
	if s, ok := f.Value.(*Setting); ok {
		initial = s.initial()
	}
	if initial == "" || initial == "false" {
		return ""
	}
	return fmt.Sprintf(" (default %s)", initial)
}
