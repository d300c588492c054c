// Package cpu says which instruction tier the kernels use: the best this CPU has, or another that
// SPMOE_CPU names.
//
// A tier is a named set of features (tiers.go). Each family of kernels has a table with a row for
// every tier in which it has something new (table.go).
package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// EnvVar is the environment variable that names the tier to use.
const EnvVar = "SPMOE_CPU"

var (
	here          = detect()
	best, problem = choose(os.Getenv(EnvVar), here)
)

// Best is the tier in use, fixed when the program starts.
func Best() Tier { return best }

// Check says whether SPMOE_CPU was usable. If it was not, Best is that of a program without it.
func Check() error { return problem }

// Here returns the features of this CPU that tiers ask for.
func Here() Features { return here }

// Tiers lists every tier this CPU has, whatever SPMOE_CPU says, in order of preference.
func Tiers() []Tier { return here.Tiers() }

// Has says whether this CPU has a tier, whatever SPMOE_CPU says.
func Has(t Tier) bool { return slices.Contains(Tiers(), t) }

// Model is the CPU's brand name, or "unknown".
func Model() string {
	if cpuid.CPU.BrandName == "" {
		return "unknown"
	}
	return cpuid.CPU.BrandName
}

// choose returns the tier that a value of SPMOE_CPU names.
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
