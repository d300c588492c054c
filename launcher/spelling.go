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
)

// longestWord is the length in bytes up to which a word is compared with others: the time to
// compare two words is the product of their lengths.
const longestWord = 100

// synonyms returns the command that is meant by a word of other tools. Edit distance does not find
// these.
func synonyms() map[string]string {
	return byWord(map[string]string{
		"train":             "pretrain finetune fit torchrun",
		"generate":          "chat sample infer inference predict",
		"eval":              "evaluate validate perplexity lm-eval",
		"compare":           "ablate diff convergence",
		"check":             "golden reference",
		"convert":           "export import hf",
		"checkpoint":        "ckpt",
		"checkpoint ls":     "ls list",
		"checkpoint verify": "verify",
		"layouts":           "mesh parallelism",
		"inspect":           "estimate summary params flops memory",
		"report":            "plot dashboard tensorboard html",
		"bench":             "benchmark perf speed",
		"bench kernels":     "gemm matmul",
		"bench exchange":    "alltoall all-to-all a2a collectives nccl-tests",
		"bench link":        "network bandwidth latency",
		"project":           "projection simulate",
		"chaos":             "faults",
		"data":              "dataset preprocess",
		"data tokenize":     "tokenize",
		"version":           "info env",
		"help":              "usage man",
	})
}

// byWord maps each word of each list to the list's key.
func byWord(lists map[string]string) map[string]string {
	all := map[string]string{}
	for key, list := range lists {
		for _, word := range strings.Fields(list) {
			all[word] = key
		}
	}
	return all
}

// unknownCommand returns the error for a word that is no command, with the command that was
// probably meant.
func unknownCommand(cmds []command, name string) error {
	text := fmt.Sprintf("unknown command %.*q", longestWord, name)
	near := synonyms()[strings.ToLower(name)]
	if near == "" {
		near = nearest(name, commandNames(cmds))
	}
	if near != "" {
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
	near, ok := strings.CutPrefix(synonyms()[strings.ToLower(word)], c.name+" ")
	if !ok {
		near = nearest(word, commandNames(c.subcommands))
	}
	if near != "" {
		text += fmt.Sprintf(" (did you mean %s?)", near)
	}
	return errors.New(text)
}

// checkChoice returns an error if the first argument is nearly one of the command's choices. The
// command itself checks other words.
func (c command) checkChoice(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return checkWord(c.name, args[0], c.choices())
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
	if advice := flagAdvice()[strings.ToLower(name)]; advice != "" && !strings.HasPrefix(fs.Name(), "project") {
		return fmt.Errorf("there is no flag --%s: %s", name, advice)
	}
	if owners := flagOwners(fs.Name(), name); owners != "" {
		return fmt.Errorf("%s has no flag --%s: it is a flag of %s", fs.Name(), name, owners)
	}
	if near := nearest(name, flagNames(fs)); near != "" {
		return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, near)
	}
	return fmt.Errorf("unknown flag --%s", name)
}

// flagOwners lists up to three commands that have a flag, for a command that does not have it. It
// lists those of the same family if there are any. It returns an empty string for an empty cmd.
func flagOwners(cmd, name string) string {
	if cmd == "" {
		return ""
	}
	top, _, _ := strings.Cut(cmd, " ")
	var relatives, others []string
	for _, parent := range commands() {
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
	return enumerate(owners)
}

// enumerate joins words as a sentence does: "a, b and c".
func enumerate(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " and " + all[last]
}

// checkValue returns an error if a value is nearly one that the flag takes. The command itself
// checks other values.
func checkValue(command, name, value string) error {
	values := []string{value}
	if command == "bench train" && name == "precision" {
		values = strings.Split(value, ",")
	}
	for _, v := range values {
		all := flagChoices(command, name)
		if err := refuseNear("--"+name+" is", v, meantValue(name, v, all), all); err != nil {
			return err
		}
	}
	return nil
}

// checkWord returns an error if a word is nearly, but not quite, one of several.
func checkWord(subject, word string, all []string) error {
	return refuseNear(subject, word, nearest(word, all), all)
}

// refuseNear returns an error if near, which a word probably stands for, is not that word.
func refuseNear(subject, word, near string, all []string) error {
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
