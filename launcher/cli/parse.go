package cli

// Command-line parsing. Flags may stand before and after the command, with one dash or two, and _
// in a flag's name stands for -.

import (
	"errors"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// SplitCommand finds the command word and returns it with all other arguments. The flags of all
// commands together decide which flags before it take a value.
func SplitCommand(cmds []Command, args []string) (name string, rest []string, err error) {
	i, unknown, help := firstWord(cmds, args)
	switch {
	case unknown == "version" || unknown == "v" || unknown == "V":
		return "version", nil, nil
	case unknown != "":
		fs, _ := cmds[0].Flags()
		err := UnknownFlag(fs, unknown)
		return "", nil, fmt.Errorf("%w (launcher help lists the commands)", err)
	case i >= 0:
		return args[i], slices.Delete(slices.Clone(args), i, i+1), nil
	case len(args) == 0 || help:
		return "help", nil, nil
	}
	line, names := strings.Join(args, " "), OneOf(commandNames(cmds))
	return "", nil, fmt.Errorf("no command in %q: use %s", line, names)
}

// SelectSubcommand returns the subcommand that the first word of args names, and the other
// arguments. It returns c itself if c has no subcommands or args have no word.
func (c Command) SelectSubcommand(args []string) (selected Command, rest []string, err error) {
	if len(c.Subcommands) == 0 {
		return c, args, nil
	}
	i, unknown, help := firstWord([]Command{c}, args)
	switch {
	case unknown != "":
		return c, nil, UnknownFlag(flag.NewFlagSet(c.Name, flag.ContinueOnError), unknown)
	case i < 0 && c.Define == nil && !help:
		return c, nil, fmt.Errorf("%s needs a subcommand: use %s", c.Name, OneOf(commandNames(c.Subcommands)))
	case i < 0:
		return c, args, nil
	}
	sub, ok := Find(c.Subcommands, args[i])
	if !ok {
		return c, nil, UnknownCommand(c.Subcommands, c.Name, args[i])
	}
	return sub, slices.Delete(slices.Clone(args), i, i+1), nil
}

// firstWord returns the index of the first argument that is neither a flag nor a flag's value. It
// is -1 if there is none before the end, --help, or a flag that no command has.
func firstWord(cmds []Command, args []string) (i int, unknown string, help bool) {
	for i := 0; i < len(args); i++ {
		name, isFlag := FlagName(args[i])
		if !isFlag {
			return i, "", false
		}
		if isHelp(name) {
			return -1, "", true
		}
		f := findFlag(cmds, name)
		if f == nil {
			return -1, name, false
		}
		if takesNext(f, args[i]) {
			i++
		}
	}
	return -1, "", false
}

// findFlag returns the flag with this name of the first command or subcommand that has it; nil:
// none. It defines the flags of no more commands than it must, for a quick start.
func findFlag(cmds []Command, name string) *flag.Flag {
	for _, parent := range cmds {
		for _, c := range parent.Family() {
			fs, _ := c.Flags()
			if f := lookup(fs, name); f != nil {
				return f
			}
		}
	}
	return nil
}

// lookup returns the flag with this name, or the key that --set reaches: --model.layers 4 is
// --set model.layers=4, because command lines of earlier versions name keys so. nil: neither.
func lookup(fs *flag.FlagSet, name string) *flag.Flag {
	if f := fs.Lookup(name); f != nil {
		return f
	}
	if set := fs.Lookup("set"); set != nil {
		return set.Value.(*Keys).all.Lookup(name)
	}
	return nil
}

// SelectFlags defines those flags of all in fs, and those keys of its --set, that a command reads.
// A name that ends with a dot stands for a section of the configuration.
func SelectFlags(fs, all *flag.FlagSet, names []string) {
	all.VisitAll(func(f *flag.Flag) {
		if keys, ok := f.Value.(*Keys); ok {
			some := flag.NewFlagSet(fs.Name(), flag.ContinueOnError)
			SelectFlags(some, keys.all, names)
			if len(FlagNames(some)) > 0 {
				fs.Var(&Keys{some}, f.Name, f.Usage)
			}
		} else if slices.ContainsFunc(names, func(name string) bool {
			return f.Name == name || strings.HasSuffix(name, ".") && strings.HasPrefix(f.Name, name)
		}) {
			fs.Var(f.Value, f.Name, f.Usage)
		}
	})
}

// FlagNames returns the names of all flags of a set.
func FlagNames(fs *flag.FlagSet) []string {
	var all []string
	fs.VisitAll(func(f *flag.Flag) { all = append(all, f.Name) })
	return all
}

// FlagName returns the canonical name of the flag in an argument such as --save_every=10.
func FlagName(arg string) (name string, ok bool) {
	if len(arg) < 2 || arg[0] != '-' {
		return "", false
	}
	name, _, _ = strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	return strings.ReplaceAll(name, "_", "-"), name != ""
}

func isHelp(name string) bool { return name == "h" || name == "help" }

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// takesNext reports whether the argument after arg, which names the flag, is the flag's value.
func takesNext(f *flag.Flag, arg string) bool { return !isBool(f) && !strings.Contains(arg, "=") }

// Parse sets the flags and returns the other arguments. The flag package's own parser stops at the
// first argument that is not a flag.
func Parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(rest, args[i+1:]...), nil
		}
		name, isFlag := FlagName(args[i])
		if !isFlag {
			rest = append(rest, args[i])
			continue
		}
		f := lookup(fs, name)
		_, value, hasValue := strings.Cut(args[i], "=")
		switch {
		case isHelp(name):
			return nil, flag.ErrHelp
		case f == nil:
			return nil, UnknownFlag(fs, name)
		case takesNext(f, args[i]):
			if i++; i == len(args) {
				return nil, fmt.Errorf("flag --%s needs a value", name)
			}
			value = args[i]
		case !hasValue:
			value = "true"
		}
		if err := set(fs, f, value); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// set sets a flag, or the key that --set names. The flag package's own types say "parse error"
// only, so set says what they accept.
func set(fs *flag.FlagSet, f *flag.Flag, value string) (err error) {
	what := "flag --" + f.Name
	if keys, ok := f.Value.(*Keys); ok {
		if f, value, err = keys.find(value); err != nil {
			return err
		}
		fs, what = keys.all, "key "+dottedKey(f)
	} else if fs.Lookup(f.Name) == nil {
		fs = fs.Lookup("set").Value.(*Keys).all
	}
	if err := fs.Set(f.Name, value); err != nil {
		if own, ok := f.Value.(flag.Getter); ok && err.Error() == "parse error" {
			err = errors.New("it must be " + expectedValue(own.Get()))
		}
		return fmt.Errorf("invalid value %.100q for %s: %w", value, what, err)
	}
	return nil
}

// expectedValue describes the texts that parse as a value of this type.
func expectedValue(value any) string {
	if _, ok := value.(time.Duration); ok {
		return "a time, such as 800ms or 10m"
	}
	return kindNames[reflect.TypeOf(value).Kind()]
}

// refuseArguments returns an error if a command that takes flags only has other arguments.
func refuseArguments(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q (--help lists the flags)", strings.Join(args, " "))
}
