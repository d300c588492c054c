package cli

// Errors for misspelled or misplaced commands, flags and keys. They suggest the one that was
// probably meant.

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// LongestWord is the length in bytes up to which a word is compared with others: the time to
// compare two words is the product of their lengths.
const LongestWord = 100

// OneOf lists words to choose from: "a or b", or "one of a, b, c".
func OneOf(all []string) string {
	if len(all) == 2 {
		return all[0] + " or " + all[1]
	}
	return "one of " + strings.Join(all, ", ")
}

// choice is the flag.Value of a flag that takes one of some words.
type choice struct {
	to  *string
	all []string
}

// Choice defines a flag that takes one of some words. The first one is its default.
func Choice(fs *flag.FlagSet, to *string, name, usage string, all ...string) {
	*to = all[0]
	fs.Var(choice{to, all}, name, usage+": "+OneOf(all))
}

// String implements [flag.Value].
func (c choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Set implements [flag.Value].
func (c choice) Set(text string) error {
	if !slices.Contains(c.all, text) {
		return errors.New("use " + OneOf(c.all))
	}
	*c.to = text
	return nil
}

// Unknown returns the error for a word that is none of several. It names the one that was probably
// meant.
func Unknown(subject, word string, all []string) error {
	text := fmt.Sprintf("%s %.*q: use %s", subject, LongestWord, word, OneOf(all))
	if near := nearest(word, all); near != "" {
		text += fmt.Sprintf(" (did you mean %s?)", near)
	}
	return errors.New(text)
}

// UnknownCommand returns the error for a word that is no command, or for one that is no subcommand
// of the command named parent.
func UnknownCommand(cmds []Command, parent, word string) error {
	whole := strings.TrimSpace(parent + " " + word)
	if now := removedCommands[whole]; now != "" {
		return fmt.Errorf("%s is no command any more: %s", whole, now)
	}
	subject := "unknown command"
	if parent != "" {
		subject = parent + ": unknown subcommand"
	}
	return Unknown(subject, word, commandNames(cmds))
}

// UnknownFlag returns the error for a flag that the command of fs does not have.
func UnknownFlag(fs *flag.FlagSet, name string) error {
	if len(name) > LongestWord {
		return fmt.Errorf("unknown flag --%s... of %d bytes", name[:LongestWord], len(name))
	}
	hint := suggestion(fs, name, "--")
	if set := fs.Lookup("set"); hint == "" && set != nil {
		hint = suggestion(set.Value.(*Keys).all, name, "--set ")
	}
	return fmt.Errorf("unknown flag --%s%s", name, hint)
}

// meantKey returns a hint for an unknown key such as training.local_batch_size; empty: none.
func meantKey(key string) string {
	if len(key) > LongestWord {
		return ""
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	Bind(fs, TrainDefaults)
	all, name := fs.Lookup("set").Value.(*Keys).all, strings.ReplaceAll(key, "_", "-")
	return cmp.Or(suggestion(all, name, ""), suggestion(all, name[strings.LastIndexByte(name, '.')+1:], ""))
}

// suggestion ends the error for an unknown name: with what to do instead, or with the flag or key
// of fs that a name of another tool, a name without its section or a misspelled name stands for. It
// is empty if there is none. before stands before the name of the flag or key.
func suggestion(fs *flag.FlagSet, name, before string) string {
	if advice := cmp.Or(flagAdvice[name], goneKeys[strings.ReplaceAll(name, "-", "_")].advice); advice != "" {
		return ", which is gone: " + advice
	}
	f := fs.Lookup(synonyms[name])
	fs.VisitAll(func(other *flag.Flag) {
		if f == nil && strings.HasSuffix(other.Name, "."+name) {
			f = other
		}
	})
	if f == nil {
		f = fs.Lookup(nearest(name, FlagNames(fs)))
	}
	if f == nil {
		return ""
	}
	if name = f.Name; before != "--" {
		name = dottedKey(f)
	}
	return fmt.Sprintf(": did you mean %s%s (%s)?", before, name, describeFlag(f))
}

// dottedKey returns the key of a flag as --set and configuration files take it: "optimizer.lr".
func dottedKey(f *flag.Flag) string { return strings.ReplaceAll(f.Name, "-", "_") }

// nearest returns the candidate that a word of another tool stands for, or else the one with the
// smallest edit distance, if that distance is small. Upper and lower case are the same.
func nearest(word string, candidates []string) string {
	if own := synonyms[strings.ToLower(word)]; slices.Contains(candidates, own) {
		return own
	}
	if len(word) > LongestWord {
		return ""
	}
	best, bound := "", 1+len(word)/3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := editDistance(strings.ToLower(word), strings.ToLower(c)); d <= bound {
			best, bound = c, d-1
		}
	}
	return best
}

// editDistance is the number of bytes to insert, delete or replace to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance from a[:i] to b[:j]
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
