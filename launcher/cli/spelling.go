package cli

// Errors for misspelled or misplaced commands, flags and values. They suggest the one that was
// probably meant.

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// LongestWord is the length in bytes up to which a word is compared with others: the time to
// compare two words is the product of their lengths.
const LongestWord = 100

// Unknown returns the error for a word that is none of several. It names the one that was probably
// meant.
func Unknown(subject, word string, all []string) error {
	text := fmt.Sprintf("%s %.*q: use %s", subject, LongestWord, word, OneOf(all))
	if near := meant(word, all); near != "" {
		text += fmt.Sprintf(" (did you mean %s?)", near)
	}
	return errors.New(text)
}

// meant returns the one of several words that another probably stands for; empty: none.
func meant(word string, all []string) string {
	if own := synonyms[strings.ToLower(word)]; slices.Contains(all, own) {
		return own
	}
	near := Nearest(word, all)
	if number.FindString(near) != number.FindString(word) {
		return "" // 3B is not what 8B means
	}
	return near
}

// number is the first number in a value.
var number = regexp.MustCompile(`[0-9]+`)

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

// UnknownFlag returns the error for a flag that the command of fs does not have. It names what
// other tools call so, the commands that have the flag, or the nearest name.
func UnknownFlag(fs *flag.FlagSet, name string) error {
	if len(name) > LongestWord {
		return fmt.Errorf("unknown flag --%s... of %d bytes", name[:LongestWord], len(name))
	}
	all := settable(fs)
	hint := func(f *flag.Flag) string {
		if fs.Lookup(f.Name) == nil {
			return didYouMean("--set "+dottedKey(f)+"=...", f)
		}
		return didYouMean("--"+f.Name, f)
	}
	if f := meantFlag(all, name); f != nil {
		return fmt.Errorf("unknown flag --%s%s", name, hint(f))
	}
	if advice := adviceOn(name); advice != "" {
		return fmt.Errorf("there is no flag --%s: %s", name, advice)
	}
	if owners := flagOwners(fs.Name(), name); owners != "" {
		return fmt.Errorf("%s has no flag --%s: it is a flag of %s", fs.Name(), name, owners)
	}
	if f := all.Lookup(Nearest(name, FlagNames(all))); f != nil {
		return fmt.Errorf("unknown flag --%s%s", name, hint(f))
	}
	return fmt.Errorf("unknown flag --%s", name)
}

// adviceOn says what to do instead of a flag or key that has no counterpart; empty: nothing.
func adviceOn(name string) string {
	return cmp.Or(flagAdvice[name], goneKeys[strings.ReplaceAll(name, "-", "_")].advice)
}

// didYouMean ends an error with the flag that was probably meant, as it is spelled.
func didYouMean(spelled string, f *flag.Flag) string {
	return fmt.Sprintf(": did you mean %s (%s)?", spelled, describeFlag(f))
}

// meantFlag returns the flag of fs that a name of another tool, or a name without its section,
// stands for; nil: none.
func meantFlag(fs *flag.FlagSet, name string) *flag.Flag {
	if f := fs.Lookup(synonyms[name]); f != nil {
		return f
	}
	var match []*flag.Flag
	fs.VisitAll(func(f *flag.Flag) {
		if strings.HasSuffix(f.Name, "."+name) {
			match = append(match, f)
		}
	})
	if len(match) == 1 {
		return match[0]
	}
	return nil
}

// meantKey returns a hint for an unknown key such as training.local_batch_size; empty: none.
func meantKey(key string) string {
	if len(key) > LongestWord {
		return ""
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	Bind(fs, TrainDefaults)
	fs = fs.Lookup("set").Value.(*Keys).all
	full := strings.ReplaceAll(key, "_", "-")
	for _, name := range []string{full, full[strings.LastIndexByte(full, '.')+1:]} {
		if f := cmp.Or(fs.Lookup(name), meantFlag(fs, name)); f != nil {
			return didYouMean(dottedKey(f), f)
		}
		if advice := adviceOn(name); advice != "" {
			return ": " + advice
		}
	}
	if f := fs.Lookup(Nearest(full, FlagNames(fs))); f != nil {
		return didYouMean(dottedKey(f), f)
	}
	return ""
}

// dottedKey returns the key of a flag as --set and configuration files take it: "optimizer.lr".
func dottedKey(f *flag.Flag) string { return strings.ReplaceAll(f.Name, "-", "_") }

// flagOwners lists up to three commands that have a flag, or those of the same family, for a
// command that does not have it.
func flagOwners(cmd, name string) string {
	var owners []string
	for _, parent := range AllCommands() {
		var family []string
		for _, c := range parent.Family() {
			fs, _ := c.Flags()
			if f := fs.Lookup(name); f != nil && !strings.HasPrefix(f.Usage, Internal) {
				family = append(family, c.Name)
			}
		}
		if len(family) > 0 && strings.HasPrefix(cmd, parent.Name+" ") {
			return strings.Join(family, ", ")
		}
		owners = append(owners, family...)
	}
	const most = 3
	if len(owners) > most {
		owners = append(owners[:most], "others")
	}
	return strings.Join(owners, ", ")
}

// checkWord returns an error if a word is none of several, but probably stands for one of them. The
// command itself checks other words.
func checkWord(subject, word string, all []string) error {
	if slices.Contains(all, word) || meant(word, all) == "" {
		return nil
	}
	return Unknown(subject, word, all)
}

// Nearest returns the candidate with the smallest edit distance, if that distance is small. Upper
// and lower case are the same. A tie goes to the first in alphabetical order.
func Nearest(word string, candidates []string) string {
	if len(word) > LongestWord {
		return ""
	}
	best, bound := "", 1+len(word)/3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := EditDistance(strings.ToLower(word), strings.ToLower(c)); d <= bound {
			best, bound = c, d-1
		}
	}
	return best
}

// EditDistance is the number of bytes to insert, delete or replace to turn a into b.
func EditDistance(a, b string) int {
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
