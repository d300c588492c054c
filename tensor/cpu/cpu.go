// Package cpu selects the instruction tier of the kernels. This is the best tier of this CPU unless
// SPMOE_CPU names another.
//
// A [Tier] is a named set of CPU features (tiers.go). Each family of kernels has a [Table] with a
// row for every tier in which it has something new (table.go).
package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// EnvVar is the environment variable that names the tier to use.
const EnvVar = "SPMOE_CPU"

var (
	here          = detect()
	best, problem = choose(os.Getenv(EnvVar), here)
)

// Best is the tier in use, fixed when the program starts.
func Best() Tier { return best }

// Check returns an error if SPMOE_CPU was not usable. Best is then the tier of a program without
// SPMOE_CPU.
func Check() error { return problem }

// Detected returns those features of this CPU that tiers need or want.
func Detected() Features { return here }

// Tiers lists every tier of this CPU in order of preference, whatever the value of SPMOE_CPU.
func Tiers() []Tier { return here.Tiers() }

// choose returns the tier for a value of SPMOE_CPU. If the value is not usable, it returns the best
// tier and an error.
func choose(env string, have Features) (Tier, error) {
	if env == "" {
		return have.Best(), nil
	}
	named := Tier(strings.ToLower(env))
	if slices.Contains(have.Tiers(), named) {
		return named, nil
	}
	reason := "is not a tier"
	if slices.Contains(All(), named) {
		reason = fmt.Sprintf("is a tier this CPU or build does not have (no %s)", FeatureNames(have.Missing(named)))
	}
	var valid []string
	for _, t := range have.Tiers() {
		valid = append(valid, t.String())
	}
	return have.Best(), fmt.Errorf("%s=%s %s: unset it or use %s", EnvVar, env, reason, strings.Join(valid, ", "))
}
