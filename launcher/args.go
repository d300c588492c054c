package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// The command line: flags may stand before and after the command word, with one dash or two,
// and words of a flag's name may be joined by - or _.

// flags returns a command's flag set and what runs it.
func (c command) flags() (*flag.FlagSet, func(context.Context, env) error) {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	action := c.define(fs)
	return fs, action
}

func find(cmds []command, name string) (command, bool) {
	i := slices.IndexFunc(cmds, func(c command) bool { return c.name == name })
	if i < 0 {
		return command{}, false
	}
	return cmds[i], true
}

func names(cmds []command) string { return strings.Join(commandNames(cmds), ", ") }

func commandNames(cmds []command) []string {
	var all []string
	for _, c := range cmds {
		all = append(all, c.name)
	}
	return all
}

// splitCommand finds the command word and returns it with all other arguments. Which flags
// before it take a value is decided by the flags of all commands together.
func splitCommand(cmds []command, args []string) (name string, rest []string, err error) {
	takesValue := map[string]bool{}
	for _, c := range cmds {
		fs, _ := c.flags()
		fs.VisitAll(func(f *flag.Flag) { takesValue[f.Name] = !isBool(f) })
	}
	for i := 0; i < len(args); i++ {
		word, isFlag := flagName(args[i])
		if !isFlag {
			return args[i], slices.Delete(slices.Clone(args), i, i+1), nil
		}
		if isHelp(word) {
			return "help", nil, nil
		}
		value, known := takesValue[word]
		if !known {
			return "", nil, fmt.Errorf("%w (launcher help lists the commands)", unknownFlag(word, slices.Collect(maps.Keys(takesValue))))
		}
		if value && !strings.Contains(args[i], "=") {
			i++
		}
	}
	if len(args) == 0 {
		return "help", nil, nil
	}
	return "", nil, fmt.Errorf("no command in %q: use %s or help", strings.Join(args, " "), names(cmds))
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

// parse sets the flags and returns the arguments that are none, wherever they stand.
func parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for len(args) > 0 {
		if args[0] == "--" {
			return append(rest, args[1:]...), nil
		}
		if _, isFlag := flagName(args[0]); !isFlag {
			rest = append(rest, args[0])
			args = args[1:]
			continue
		}
		// The flag package stops at the first argument that is no flag: hand it one flag a time.
		end := 1
		name, _ := flagName(args[0])
		f := fs.Lookup(name)
		switch {
		case isHelp(name):
			return nil, flag.ErrHelp
		case f == nil:
			return nil, unknownFlag(name, flagNames(fs))
		case !isBool(f) && !strings.Contains(args[0], "="):
			if len(args) == 1 {
				return nil, fmt.Errorf("flag --%s needs a value", name)
			}
			end = 2
		}
		one := slices.Clone(args[:end])
		_, value, hasValue := strings.Cut(args[0], "=")
		if one[0] = "--" + name; hasValue {
			one[0] += "=" + value
		}
		if err := fs.Parse(one); err != nil {
			return nil, errors.New(strings.Replace(err.Error(), "parse error", "it must be "+expected(f), 1))
		}
		if !hasValue && end == 2 {
			value = args[1]
		}
		if err := misspelt(fs.Name(), name, value); err != nil {
			return nil, err
		}
		args = args[end:]
	}
	return rest, nil
}

// expected says what a flag of the flag package's own types takes, of which that says nothing.
func expected(f *flag.Flag) string {
	if g, ok := f.Value.(flag.Getter); ok {
		switch g.Get().(type) {
		case bool:
			return "true or false"
		case time.Duration:
			return "a time, such as 800ms or 10m"
		case float64:
			return "a number"
		}
	}
	return "a whole number"
}

func flagNames(fs *flag.FlagSet) []string {
	var all []string
	fs.VisitAll(func(f *flag.Flag) { all = append(all, f.Name) })
	return all
}

// longestFlag is far above the length of a flag's name in bytes: comparing names takes the product of their lengths.
const longestFlag = 100

// unknownFlag names the nearest of the flags that there are.
func unknownFlag(name string, flags []string) error {
	if len(name) > longestFlag {
		return fmt.Errorf("unknown flag --%s... of %d bytes", name[:longestFlag], len(name))
	}
	if near := nearest(name, flags); near != "" {
		return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, near)
	}
	return fmt.Errorf("unknown flag --%s", name)
}

// nearest returns the candidate with the smallest edit distance, if it is small; of equals the
// first in the alphabet.
func nearest(word string, candidates []string) string {
	best, bound := "", 1+len(word)/3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := editDistance(word, c); d <= bound {
			best, bound = c, d-1
		}
	}
	return best
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
