package main

// Words of the command line that are of a fixed set: what they are, for completion and for "did you mean".

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// choices returns the values that a flag of a command takes, if they are of a fixed set.
func choices(command, name string) []string {
	if command == "compare" && name == "precision" {
		return nil // a list of recipes
	}
	if command == "project" {
		return projectChoices(name)
	}
	switch name {
	case "flavor":
		return flavors()
	case "precision":
		var all []string
		for _, p := range moe.Precisions() {
			all = append(all, p.Name)
		}
		return all
	case "ep":
		return ep.Names()
	case "ep-dispatch", "ep-combine-backward":
		return []string{ep.Plain.String(), ep.MXFP8.String()}
	case "mx.gradient":
		return []string{"e4m3", "e5m2", "int8"}
	case "mx.scale":
		return []string{"rceil", "floor", "ceil", "even"}
	case "model.score-func":
		return []string{moe.Sigmoid, moe.Softmax}
	case "optimizer.decay":
		return []string{"cosine", "linear", "sqrt"}
	case "optimizer.name":
		return optim.Names()
	case "ranks":
		return []string{"goroutine", "process"}
	case "bind-to":
		return []string{"none", "core"}
	case "log-format":
		return []string{"text", "json"}
	case "color":
		return []string{"auto", "always", "never"}
	case "dtype":
		return []string{"bf16", "fp32"}
	}
	return nil
}

func flavors() []string {
	var all []string
	for _, f := range moe.Flavors() {
		all = append(all, f.Name)
	}
	return all
}

// misspelt says what a value was meant to be, if it is nearly one that its flag takes. Others are for the command to refuse.
func misspelt(command, name, value string) error {
	all, words := choices(command, name), []string{value}
	if command == "bench" && name == "precision" {
		words = strings.Split(value, ",")
	}
	for _, word := range words {
		if len(word) > longestFlag || slices.Contains(all, word) {
			continue
		}
		if near := nearest(word, all); near != "" {
			return fmt.Errorf("--%s is %q: use %s (did you mean %s?)", name, word, either(all), near)
		}
	}
	return nil
}

// either lists words of which one is to be chosen.
func either(all []string) string {
	if len(all) == 2 {
		return all[0] + " or " + all[1]
	}
	return "one of " + strings.Join(all, ", ")
}

// actions returns the words that a command takes first, such as ls and verify, if they are of a fixed set.
func (c command) actions() []string {
	first, _, _ := strings.Cut(c.args, " ")
	if first = strings.Trim(first, "[]"); !strings.Contains(first, "|") || first != strings.ToLower(first) {
		return nil
	}
	return strings.Split(first, "|")
}

// misspeltAction says which action was meant, if a word is nearly one.
func (c command) misspeltAction(args []string) error {
	all := c.actions()
	if len(args) == 0 || len(args[0]) > longestFlag || slices.Contains(all, args[0]) {
		return nil
	}
	if near := nearest(args[0], all); near != "" {
		return fmt.Errorf("%s %q: use %s (did you mean %s?)", c.name, args[0], either(all), near)
	}
	return nil
}

// unknownCommand names the nearest of the commands that there are.
func unknownCommand(cmds []command, name string) error {
	text := fmt.Sprintf("unknown command %.*q", longestFlag, name)
	if len(name) <= longestFlag {
		if near := nearest(name, append(commandNames(cmds), "help")); near != "" {
			text += fmt.Sprintf(": did you mean %s?", near)
		}
	}
	return errors.New(text + " (commands: " + names(cmds) + ", help)")
}
