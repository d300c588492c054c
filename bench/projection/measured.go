package projection

// Projections from measurements of the engine: its routing and, for comparison, its own times only.

import (
	"fmt"
	"math"
	"slices"
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
	uniform := DistinctLimited(p.Places, f.Model.Experts/p.Places, f.Model.TopK, f.Model.Groups, f.Model.Limit)
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

// EngineOnly projects the two later runs of the headline only from this machine's time ratios: it
// shortens the exchange's and the grouped products' shares of the step by their ratios. It shows
// what such a projection is worth, and is not part of the model.
func EngineOnly(f ratios.File) (deepEP, mxfp8 float64, ok bool) {
	exchange, grouped := f.Phases["exchange"], 0.0
	for name, share := range f.Phases {
		if strings.Contains(name, "grouped") {
			grouped += share
		}
	}
	var products, exchanges []float64
	for _, p := range f.Products {
		if strings.HasPrefix(p.Name, "experts") {
			products = append(products, p.Time)
		}
	}
	for _, x := range f.Exchange {
		exchanges = append(exchanges, x.Time)
	}
	if exchange == 0 || grouped == 0 || len(products) == 0 || len(exchanges) == 0 {
		return 0, 0, false
	}
	t := 1 - exchange*(1-middle(exchanges))
	u := t - grouped*(1-middle(products))
	return PublishedBF16 / t, PublishedBF16 / u, !math.IsNaN(t) && u > 0
}

func middle(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
