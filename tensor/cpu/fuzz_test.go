package cpu

import (
	"slices"
	"strings"
	"testing"
)

// For every value of the variable, choose returns a tier of this CPU. It returns no error for the
// names of such tiers.
func FuzzChoose(f *testing.F) {
	for _, tier := range All() {
		f.Add(tier.String())
	}
	f.Add("AVX2")
	f.Add("avx1024\n")
	f.Fuzz(func(t *testing.T, env string) {
		got, err := choose(env, Detected())
		named := slices.ContainsFunc(Tiers(), func(tier Tier) bool { return strings.EqualFold(tier.String(), env) })
		if !slices.Contains(Tiers(), got) || named && (err != nil || !strings.EqualFold(got.String(), env)) || err == nil && env != "" && !named {
			t.Errorf("%q: %v, %v", env, got, err)
		}
	})
}
