package main

// How a command line is read. Flags stand before and after the command word, with one dash or two,
// and _ in a flag's name stands for -.
//
// urfave/cli v3.14.0 was tried in place of this file, help.go and completion.go. It refuses a
// command's flags before its word and _ for -, and its errors are text without a type. Its bash
// script needs the bash-completion package, completes neither --flag=value nor folders, and
// evaluates the line: $(command) runs at a press of Tab. The adapters were nearly as long as what
// they replaced.

import (
	"errors"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// splitCommand finds the command word and returns it with all other arguments. Which flags before
// it take a value is decided by the flags of all commands together.
func splitCommand(cmds []command, args []string) (name string, rest []string, err error) {
	all := allFlags(cmds)
	for i := 0; i < len(args); i++ {
		word, isFlag := flagName(args[i])
		if !isFlag {
			return args[i], slices.Delete(slices.Clone(args), i, i+1), nil
		}
		if isHelp(word) {
			return "help", nil, nil
		}
		f := all.Lookup(word)
		if f == nil {
			err := unknownFlag(word, flagNames(all))
			return "", nil, fmt.Errorf("%w (launcher help lists the commands)", err)
		}
		if takesNext(f, args[i]) {
			i++
		}
	}
	if len(args) == 0 {
		return "help", nil, nil
	}
	line, names := strings.Join(args, " "), oneOf(commandNames(cmds))
	return "", nil, fmt.Errorf("no command in %q: use %s", line, names)
}

// allFlags returns the flags of all commands together. Of equal names, the first is taken.
func allFlags(cmds []command) *flag.FlagSet {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	for _, c := range cmds {
		fs, _ := c.flags()
		fs.VisitAll(func(f *flag.Flag) {
			if all.Lookup(f.Name) == nil {
				all.Var(f.Value, f.Name, f.Usage)
			}
		})
	}
	return all
}

func flagNames(fs *flag.FlagSet) []string {
	var all []string
	fs.VisitAll(func(f *flag.Flag) { all = append(all, f.Name) })
	return all
}

// flagName returns the canonical name of the flag in an argument such as --save_every=10.
func flagName(arg string) (name string, ok bool) {
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

// takesNext reports whether the value of a flag is the argument after arg, which names it.
func takesNext(f *flag.Flag, arg string) bool { return !isBool(f) && !strings.Contains(arg, "=") }

// parse sets the flags and returns the other arguments. The flag package's own parser stops at the
// first of those.
func parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(rest, args[i+1:]...), nil
		}
		name, isFlag := flagName(args[i])
		if !isFlag {
			rest = append(rest, args[i])
			continue
		}
		f := fs.Lookup(name)
		_, value, hasValue := strings.Cut(args[i], "=")
		switch {
		case isHelp(name):
			return nil, flag.ErrHelp
		case f == nil:
			return nil, unknownFlag(name, flagNames(fs))
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

// set sets a flag. Of a value that the flag package's own types refuse, it says what they take.
func set(fs *flag.FlagSet, f *flag.Flag, value string) error {
	if err := fs.Set(f.Name, value); err != nil {
		if own, ok := f.Value.(flag.Getter); ok && err.Error() == "parse error" {
			err = errors.New("it must be " + expected(own.Get()))
		}
		return fmt.Errorf("invalid value %q for flag --%s: %w", value, f.Name, err)
	}
	return checkValue(fs.Name(), f.Name, value)
}

// expected says what text makes a value of a type.
func expected(value any) string {
	if _, ok := value.(time.Duration); ok {
		return "a time, such as 800ms or 10m"
	}
	return kinds[reflect.TypeOf(value).Kind()]
}
