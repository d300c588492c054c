package projection

// What an engine's run says: its routing in a projection, and, for comparison, a projection from
// its own times alone.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/bench/ratios"
)

// FromRatios returns the routing that a run measured, for expert parallelism of ep ranks: the
// spread of the nearest layout that it counted.
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

// Mismatch says how the measured model's routing differs in kind from the projected one's, or
// nothing.
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

// EngineOnly projects the two later runs of the headline from this machine's ratios of times alone:
// the exchange's and the grouped products' shares of its step, each shortened by its own ratio. It
// is shown to say what such a projection is worth, and is no part of the model.
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
