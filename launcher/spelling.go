package main

// "Did you mean": errors for words that are nearly a command, an action, a flag or a value.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// longestWord bounds the words, in bytes, for which a near one is looked for: comparing two words
// takes the product of their lengths.
const longestWord = 100

// unknownCommand names the nearest command.
func unknownCommand(cmds []command, name string) error {
	text := fmt.Sprintf("unknown command %.*q", longestWord, name)
	if near := nearest(name, commandNames(cmds)); near != "" {
		text += fmt.Sprintf(": did you mean %s?", near)
	}
	return errors.New(text + " (commands: " + strings.Join(commandNames(cmds), ", ") + ")")
}

// checkAction returns an error if the first argument is nearly an action of the command. Other
// words are left to the command.
func (c command) checkAction(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return checkWord(c.name, args[0], c.actions())
}

// unknownFlag names the nearest flag.
func unknownFlag(name string, flags []string) error {
	if len(name) > longestWord {
		return fmt.Errorf("unknown flag --%s... of %d bytes", name[:longestWord], len(name))
	}
	if near := nearest(name, flags); near != "" {
		return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, near)
	}
	return fmt.Errorf("unknown flag --%s", name)
}

// checkValue returns an error if a value is nearly one that the flag takes. Other values are left
// to the command.
func checkValue(command, name, value string) error {
	words := []string{value}
	if command == "bench" && name == "precision" {
		words = strings.Split(value, ",")
	}
	for _, word := range words {
		if err := checkWord("--"+name+" is", word, choices(command, name)); err != nil {
			return err
		}
	}
	return nil
}

// checkWord returns an error if a word is nearly, but not quite, one of several.
func checkWord(subject, word string, all []string) error {
	near := nearest(word, all)
	if near == "" || slices.Contains(all, word) {
		return nil
	}
	return fmt.Errorf("%s %q: use %s (did you mean %s?)", subject, word, oneOf(all), near)
}

// nearest returns the candidate with the smallest edit distance, if that is small. Of equally near
// ones it returns the first in the alphabet.
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

// editDistance is the number of bytes to insert, delete or replace to get b from a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // from a[:i] to b[:j]
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
