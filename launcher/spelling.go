package main

// Errors for misspelled or misplaced commands, flags and values. They suggest the one that was
// probably meant.

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/collective/ep"
)

// longestWord is the length in bytes up to which a word is compared with others: the time to
// compare two words is the product of their lengths.
const longestWord = 100

// unknownCommand returns the error for a word that is no command, with the command that was
// probably meant.
func unknownCommand(cmds []command, name string) error {
	text := fmt.Sprintf("unknown command %.*q", longestWord, name)
	if near := meantCommand("", name, cmds); near != "" {
		text += fmt.Sprintf(": did you mean %s?", near)
	}
	return errors.New(text + " (commands: " + strings.Join(commandNames(cmds), ", ") + ")")
}

// replacedRun returns the error for run FILE of earlier versions, with the script that replaces it.
func replacedRun(args []string) error {
	files := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasSuffix(arg, ".toml") })
	name, more := "five-minutes-2-cores", ": give its commands the settings of your run file"
	if len(files) > 0 {
		given := strings.TrimSuffix(filepath.Base(files[0]), ".toml")
		if slices.Contains([]string{name, "night-2-cores", "night-16-cores"}, given) {
			name, more = given, ""
		}
	}
	return fmt.Errorf("run is no command any more: the script docs/recipes/%s.sh does the same, and continues when it is run again%s",
		name, more)
}

// unknownSubcommand is unknownCommand for a subcommand of c.
func (c command) unknownSubcommand(word string) error {
	text := fmt.Sprintf("%s %.*q: use %s", c.name, longestWord, word, oneOf(commandNames(c.subcommands)))
	if c.define != nil {
		text += ", or no subcommand"
	}
	if near := meantCommand(c.name+" ", word, c.subcommands); near != "" {
		text += fmt.Sprintf(" (did you mean %s?)", near)
	}
	return errors.New(text)
}

// meantCommand returns the command that a word probably stands for, or the subcommand of the
// command in prefix; empty: none.
func meantCommand(prefix, word string, cmds []command) string {
	for _, name := range meanings(commandSynonyms, word) {
		if name, ok := strings.CutPrefix(name, prefix); ok {
			return name
		}
	}
	return nearest(word, commandNames(cmds))
}

// checkChoice returns an error if the first argument is nearly one of the command's choices. The
// command itself checks other words.
func (c command) checkChoice(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return checkWord(c.name, "", args[0], c.choices())
}

// unknownFlag returns the error for a flag that the command of fs does not have. It names the flag
// that other tools call so, the commands that have it, or the nearest flag of this command.
func unknownFlag(fs *flag.FlagSet, name string) error {
	if len(name) > longestWord {
		return fmt.Errorf("unknown flag --%s... of %d bytes", name[:longestWord], len(name))
	}
	if f := meantFlag(fs, name); f != nil {
		return fmt.Errorf("unknown flag --%s: did you mean --%s (%s)?", name, f.Name, describeFlag(f))
	}
	// Projections know GPUs and more kinds of parallelism.
	if advice := meanings(flagAdvice, name); advice != nil && !strings.HasPrefix(fs.Name(), "project") {
		return fmt.Errorf("there is no flag --%s: %s", name, advice[0])
	}
	if owners := flagOwners(fs.Name(), name); owners != "" {
		return fmt.Errorf("%s has no flag --%s: it is a flag of %s", fs.Name(), name, owners)
	}
	if near := nearest(name, flagNames(fs)); near != "" {
		return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, near)
	}
	return fmt.Errorf("unknown flag --%s", name)
}

// valueAdvice returns what to add to the error about a value that another flag takes.
func valueAdvice(name, value string) string {
	if name == "ep" && slices.Contains(ep.Names(), value) {
		return "; --ep-exchange selects the exchange"
	}
	return ""
}

// meantFlag returns the flag of fs that a name of another tool, or a name without its section,
// stands for; nil: none.
func meantFlag(fs *flag.FlagSet, name string) *flag.Flag {
	for _, target := range meanings(flagSynonyms, name) {
		if f := fs.Lookup(target); f != nil {
			return f
		}
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
	value, usage := flag.UnquoteUsage(f)
	usage = strings.TrimPrefix(usage, value+" ")
	if end := strings.IndexAny(usage, ";:("); end > 0 {
		usage = strings.TrimSpace(usage[:end])
	}
	return usage
}

// meantKey returns a hint for an unknown key of a configuration file, such as
// training.local_batch_size; empty: none.
func meantKey(key string) string {
	if len(key) > longestWord {
		return ""
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	bind(fs, trainDefaults)
	full := strings.ReplaceAll(key, "_", "-")
	last := full[strings.LastIndexByte(full, '.')+1:]
	for _, name := range []string{full, last} {
		if f := fs.Lookup(name); f != nil {
			return ": did you mean " + keyOf(f) + "?"
		}
		if f := meantFlag(fs, name); f != nil {
			return fmt.Sprintf(": did you mean %s (%s)?", keyOf(f), describeFlag(f))
		}
		if advice := meanings(flagAdvice, name); advice != nil {
			return ": " + advice[0]
		}
	}
	if near := nearest(full, flagNames(fs)); near != "" {
		return ": did you mean " + keyOf(fs.Lookup(near)) + "?"
	}
	return ""
}

// keyOf returns the key of a flag in a configuration file, with its section: "save_every",
// "lr in [optimizer]".
func keyOf(f *flag.Flag) string {
	name := strings.ReplaceAll(f.Name, "-", "_")
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		return name[dot+1:] + " in [" + name[:dot] + "]"
	}
	return name
}

// flagOwners lists up to three commands that have a flag, for a command that does not have it. It
// lists those of the same family if there are any. It returns an empty string for an empty cmd.
func flagOwners(cmd, name string) string {
	if cmd == "" {
		return ""
	}
	top, _, _ := strings.Cut(cmd, " ")
	var relatives, others []string
	for _, parent := range allCommands() {
		for _, c := range parent.family() {
			fs, _ := c.flags()
			f := fs.Lookup(name)
			switch {
			case f == nil || strings.HasPrefix(f.Usage, internal):
			case parent.name == top:
				relatives = append(relatives, c.name)
			default:
				others = append(others, c.name)
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
	if last := len(owners) - 1; last > 0 {
		owners = append(owners[:last-1], owners[last-1]+" and "+owners[last])
	}
	return strings.Join(owners, ", ")
}

// checkValue returns an error if a value is nearly one that the flag takes. The command itself
// checks other values.
func checkValue(command, name, value string) error {
	values := []string{value}
	if command == "bench train" && name == "precision" {
		values = strings.Split(value, ",")
	}
	for _, v := range values {
		if err := checkWord("--"+name+" is", name, v, flagChoices(command, name)); err != nil {
			return err
		}
	}
	return nil
}

// checkWord returns an error if a word is none of several, but probably stands for one of them. The
// word is the value of a flag, or of none.
func checkWord(subject, flag, word string, all []string) error {
	near := nearest(word, all)
	for _, value := range meanings(valueSynonyms[flag], word) {
		if slices.Contains(all, value) {
			near = value
		}
	}
	if near == "" || slices.Contains(all, word) {
		return nil
	}
	return fmt.Errorf("%s %q: use %s (did you mean %s?)", subject, word, oneOf(all), near)
}

// nearest returns the candidate with the smallest edit distance, if that distance is small. A tie
// goes to the first in alphabetical order.
func nearest(word string, candidates []string) string {
	if len(word) > longestWord {
		return ""
	}
	best, bound := "", 1+len(word)/3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := editDistance(word, c); d <= bound {
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
