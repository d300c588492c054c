package main

// The flags whose values come from a fixed set, for completion and for "did you mean".

import (
	"fmt"
	"strings"

	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/mx"
)

// flagChoices returns the values that a flag of a command takes, if they come from a fixed set.
func flagChoices(command, name string) []string {
	if command == "compare" && name == "precision" {
		return nil // a list of recipes
	}
	if command != "project hosts" && strings.HasPrefix(command, "project") {
		return projectChoices(name)
	}
	if choices := (moe.Options{}).Choices()[name]; choices != nil {
		return choices
	}
	switch name {
	case "flavor":
		return flavors()
	case "precision":
		return moe.PrecisionNames()
	case "recompute":
		return moe.RecomputeNames()
	case "ep-exchange":
		return ep.Names()
	case "ep-dispatch", "ep-combine-backward":
		return ep.WireNames()
	case "mx.gradient":
		return names(mx.MXFormats())
	case "mx.scale":
		return names(mx.ScaleModes())
	case "model.score-func":
		return []string{moe.Sigmoid, moe.Softmax}
	case "optimizer.decay":
		return []string{"cosine", "linear", "sqrt"}
	case "optimizer.name":
		return optim.Names()
	case "optimizer.scale":
		return optim.MuonScales()
	case "optimizer.moments", "optimizer.newton-schulz":
		return optim.MomentsTypes()
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
	case "wire":
		return []string{"bf16", "mxfp8"}
	case "action":
		return chaosActions()
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

// wholeModels returns the flavors that are not slices of others.
func wholeModels() []string {
	var all []string
	for _, f := range moe.Flavors() {
		if f.SliceOf == "" {
			all = append(all, f.Name)
		}
	}
	return all
}

// names returns the names of the values.
func names[T fmt.Stringer](values []T) (all []string) {
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}

// oneOf lists words to choose from: "a or b", or "one of a, b, c".
func oneOf(all []string) string {
	if len(all) == 2 {
		return all[0] + " or " + all[1]
	}
	return "one of " + strings.Join(all, ", ")
}
