// Package cputest runs tests in each tier of a family of kernels. It reports the tiers that this
// CPU lacks.
package cputest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor/cpu"
)

// NeedVar is the environment variable that lists the tiers that must be tested, separated by
// spaces. If a listed tier is missing, its tests fail. Tests of other missing tiers are skipped.
const NeedVar = "SPMOE_NEED_TIERS"

// Each runs f as a subtest with each row of a family's table. It skips rows that this CPU cannot
// run.
func Each[K any](t *testing.T, table cpu.Table[K], f func(t *testing.T, kernels K)) {
	t.Helper()
	for _, tier := range table.Tiers() {
		t.Run(tier.String(), func(t *testing.T) {
			Need(t, tier)
			f(t, table[tier])
		})
	}
}

// Need skips a test of a tier that this CPU lacks, or fails it if NeedVar lists the tier.
func Need(t testing.TB, tier cpu.Tier) {
	t.Helper()
	need(t, tier, cpu.Detected(), os.Getenv(NeedVar))
}

func need(t testing.TB, tier cpu.Tier, has cpu.Features, needed string) {
	t.Helper()
	missing := has.Missing(tier)
	if len(missing) == 0 {
		return
	}
	reason := fmt.Sprintf("tier %v is not tested: this CPU or build has no %s", tier, cpu.FeatureNames(missing))
	if slices.Contains(strings.Fields(needed), tier.String()) {
		t.Fatalf("%s, and %s is %q", reason, NeedVar, needed)
	} else {
		t.Skip(reason)
	}
}
