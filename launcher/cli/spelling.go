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

	"spmoe/collective/ep"
	"spmoe/collective/pipeline"
)

// LongestWord is the length in bytes up to which a word is compared with others: the time to
// compare two words is the product of their lengths.
const LongestWord = 100

// UnknownCommand returns the error for a word that is no command, or for one that is no subcommand
// of the command named parent.
func UnknownCommand(cmds []Command, parent, word string) error {
	if now := removedCommands[word]; now != "" && parent == "" {
		return fmt.Errorf("%s is no command any more: %s", word, now)
	}
	names := commandNames(cmds)
	near := Nearest(word, names)
	if meant := commandSynonyms[strings.ToLower(word)]; slices.Contains(names, meant) {
		near = meant
	}
	subject := "unknown command"
	if parent != "" {
		subject = parent + ": unknown subcommand"
	}
	return Unknown(subject, word, names, near)
}

// Unknown returns the error for a word that is none of several. near is the one that it probably
// stands for, if any.
func Unknown(subject, word string, all []string, near string) error {
	text := fmt.Sprintf("%s %.*q: use %s", subject, LongestWord, word, OneOf(all))
	if near != "" {
		text += fmt.Sprintf(" (did you mean %s?)", near)
	}
	return errors.New(text)
}

// removedCommands says what to do instead of commands of earlier versions.
var removedCommands = map[string]string{
	"report": "launcher inspect RUN... --html writes the pages of runs",
	"routes": "OUT/routes.arrow is an Arrow stream, which pyarrow reads (docs/routes.md); the page of a run shows its loads",
	"run":    "the scripts in docs/recipes do the same, and train --config reads a configuration",
}

// UnknownFlag returns the error for a flag that the command of fs does not have. It names what
// other tools call so, the commands that have the flag, or the nearest name.
func UnknownFlag(fs *flag.FlagSet, name string) error {
	if len(name) > LongestWord {
		return fmt.Errorf("unknown flag --%s... of %d bytes", name[:LongestWord], len(name))
	}
	all := settable(fs)
	spelled := func(f *flag.Flag) string {
		if fs.Lookup(f.Name) == nil {
			return "--set " + dottedKey(f) + "=..."
		}
		return "--" + f.Name
	}
	if f := meantFlag(all, name); f != nil {
		return fmt.Errorf("unknown flag --%s: did you mean %s (%s)?", name, spelled(f), describeFlag(f))
	}
	// Projections know GPUs and more kinds of parallelism.
	if advice := flagAdvice[name]; advice != "" && !strings.HasPrefix(fs.Name(), "project") {
		return fmt.Errorf("there is no flag --%s: %s", name, advice)
	}
	if owners := flagOwners(fs.Name(), name); owners != "" {
		return fmt.Errorf("%s has no flag --%s: it is a flag of %s", fs.Name(), name, owners)
	}
	if near := Nearest(name, FlagNames(all)); near != "" {
		return fmt.Errorf("unknown flag --%s: did you mean %s?", name, spelled(all.Lookup(near)))
	}
	return fmt.Errorf("unknown flag --%s", name)
}

// valueAdvice returns what to add to the error about a value that another key takes.
func valueAdvice(name, value string) string {
	if name == "ep" && slices.Contains(ep.Names(), value) {
		return "; --set ep_exchange=... selects the exchange"
	}
	return ""
}

// meantFlag returns the flag of fs that a name of another tool, or a name without its section,
// stands for; nil: none.
func meantFlag(fs *flag.FlagSet, name string) *flag.Flag {
	if f := fs.Lookup(flagSynonyms[name]); f != nil {
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

// describeFlag returns the first clause of a flag's help.
func describeFlag(f *flag.Flag) string {
	_, _, usage := splitUsage(f)
	if end := strings.IndexAny(usage, ";:("); end > 0 {
		usage = strings.TrimSpace(usage[:end])
	}
	return usage
}

// meantKey returns a hint for an unknown key such as training.local_batch_size, in the words of
// spell; empty: none.
func meantKey(key string, spell func(*flag.Flag) string) string {
	if len(key) > LongestWord {
		return ""
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	Bind(fs, TrainDefaults)
	fs = fs.Lookup("set").Value.(*Keys).all
	full := strings.ReplaceAll(key, "_", "-")
	last := full[strings.LastIndexByte(full, '.')+1:]
	for _, name := range []string{full, last} {
		if f := cmp.Or(fs.Lookup(name), meantFlag(fs, name)); f != nil {
			return fmt.Sprintf(": did you mean %s (%s)?", spell(f), describeFlag(f))
		}
		if advice := flagAdvice[name]; advice != "" {
			return ": " + advice
		}
	}
	if near := Nearest(full, FlagNames(fs)); near != "" {
		return ": did you mean " + spell(fs.Lookup(near)) + "?"
	}
	return ""
}

// dottedKey returns the key of a flag as --set takes it: "optimizer.lr".
func dottedKey(f *flag.Flag) string { return strings.ReplaceAll(f.Name, "-", "_") }

// keyInFile returns the key of a flag in a configuration file, with its section: "save_every",
// "lr in [optimizer]".
func keyInFile(f *flag.Flag) string {
	name := dottedKey(f)
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		return name[dot+1:] + " in [" + name[:dot] + "]"
	}
	return name
}

// flagOwners lists up to three commands that have a flag, those of the same family if there are
// any, for a command that does not have it. It returns an empty string for an empty cmd.
func flagOwners(cmd, name string) string {
	if cmd == "" {
		return ""
	}
	top, _, _ := strings.Cut(cmd, " ")
	var relatives, others []string
	for _, parent := range AllCommands() {
		for _, c := range parent.Family() {
			fs, _ := c.Flags()
			f := fs.Lookup(name)
			switch {
			case f == nil || strings.HasPrefix(f.Usage, Internal):
			case parent.Name == top:
				relatives = append(relatives, c.Name)
			default:
				others = append(others, c.Name)
			}
		}
	}
	owners := others
	if len(relatives) > 0 {
		owners = relatives
	}
	const most = 3
	if len(owners) > most {
		owners = append(owners[:most], "others")
	}
	return strings.Join(owners, ", ")
}

// checkValue returns an error if a value is nearly one that the flag takes. The command itself
// checks other values, and knows a schedule in any letters.
func checkValue(command, name, value string) error {
	values := []string{value}
	if command == "bench train" && name == "precision" {
		values = strings.Split(value, ",")
	}
	for _, v := range values {
		if name == "pp-schedule" && slices.ContainsFunc(pipeline.Names(), func(s string) bool { return strings.EqualFold(s, v) }) {
			continue
		}
		if err := checkWord(name+" is", v, FlagChoices(command, name)); err != nil {
			return err
		}
	}
	return nil
}

// checkWord returns an error if a word is none of several, but probably stands for one of them.
func checkWord(subject, word string, all []string) error {
	near := Nearest(word, all)
	if number.FindString(near) != number.FindString(word) {
		near = "" // 3B is not what 8B means
	}
	if value := valueSynonyms[strings.ToLower(word)]; slices.Contains(all, value) {
		near = value
	}
	if near == "" || slices.Contains(all, word) {
		return nil
	}
	return Unknown(subject, word, all, near)
}

// number is the first number in a value.
var number = regexp.MustCompile(`[0-9]+`)

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
