package projection

// Projections from measurements of the engine: its routing and, for comparison, its own times only.

import (
	"fmt"
	"strings"

	"spmoe/bench/ratios"
)

// FromRatios returns the routing that a run measured, for ep expert-parallel ranks: the spread of
// the nearest layout that it counted.
func FromRatios(f ratios.File, ep int) (*Routed, error) {
	p, ok := f.At(ep)
	if !ok {
		return nil, fmt.Errorf("the ratios hold no routing: measure a run with --record-ratios")
	}
	uniform := distinctLimited(p.Places, f.Model.Experts/p.Places, f.Model.TopK, f.Model.Groups, f.Model.Limit)
	return &Routed{
		RankImbalance: max(1, p.Imbalance), DistinctOverUniform: p.Distinct / uniform,
		Origin: fmt.Sprintf("%s: %d experts, top-%d, %d places, %d steps on %s", f.Model.Name, f.Model.Experts, f.Model.TopK, p.Places, f.Steps, f.Machine.CPU),
	}, nil
}

// Mismatch describes how the measured model's routing differs in kind from the projected one's. It
// is empty if it does not.
func Mismatch(f ratios.File, m Model) string {
	var list []string
	for _, d := range []struct {
		what        string
		has, wanted int
	}{{"experts", f.Model.Experts, m.Experts}, {"top-k", f.Model.TopK, m.TopK}, {"groups", f.Model.Groups, m.Groups}, {"group limit", f.Model.Limit, m.TopKGroups}} {
		if d.has != d.wanted {
			list = append(list, fmt.Sprintf("%s %d, not %d", d.what, d.has, d.wanted))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "the measured router has " + strings.Join(list, ", ") + ": its imbalance is an assumption here"
}
