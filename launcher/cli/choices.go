package cli

// The flags whose values come from a fixed set, for errors.

import (
	"fmt"
	"strings"

	"spmoe/bench/projection"
	"spmoe/collective/ep"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/mx"
)

// FlagChoices returns the values that a flag of a command takes, if they come from a fixed set.
func FlagChoices(command, name string) []string {
	if command == "compare" && name == "precision" {
		return nil // a list of recipes
	}
	if strings.HasPrefix(command, "project") {
		return map[string][]string{
			"precision": projection.Precisions(),
			"graphs":    projection.Graphs(),
			"routing":   projection.Routings(),
			"software":  projection.Softwares(),
			"exchange":  projection.Exchanges(),
		}[name]
	}
	if choices := (moe.Options{}).Choices()[name]; choices != nil {
		return choices
	}
	if name == "flavor" {
		return Flavors()
	}
	return map[string][]string{
		"pp-schedule":             pipeline.Names(),
		"precision":               moe.PrecisionNames(),
		"recompute":               moe.RecomputeNames(),
		"ep-exchange":             ep.Names(),
		"ep-dispatch":             ep.WireNames(),
		"ep-combine-backward":     ep.WireNames(),
		"mx.gradient":             names(mx.MXFormats()),
		"mx.scale":                names(mx.ScaleModes()),
		"model.score-func":        {moe.Sigmoid, moe.Softmax},
		"optimizer.decay":         {"cosine", "linear", "sqrt"},
		"optimizer.name":          optim.Names(),
		"optimizer.scale":         optim.MuonScales(),
		"optimizer.moments":       optim.MomentsTypes(),
		"optimizer.newton-schulz": optim.MomentsTypes(),
		"ranks":                   {"goroutine", "process"},
		"bind-to":                 {"none", "core"},
		"log-format":              {"text", "json"},
		"color":                   {"auto", "always", "never"},
		"dtype":                   {"bf16", "fp32"},
		"wire":                    {"bf16", "mxfp8"},
	}[name]
}

// Flavors returns the names of all flavors.
func Flavors() []string {
	var all []string
	for _, f := range moe.Flavors() {
		all = append(all, f.Name)
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

// OneOf lists words to choose from: "a or b", or "one of a, b, c".
func OneOf(all []string) string {
	if len(all) == 2 {
		return all[0] + " or " + all[1]
	}
	return "one of " + strings.Join(all, ", ")
}
