package hosts

// The files with measurements: one JSON object per line, as launcher bench writes them.

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/internal/strictjson"
	"spmoe/moe"
)

// figure is a line of such a file. The line may have other fields.
type figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Flavor string  `json:"flavor"`
	Ranks  int     `json:"np"`
}

func figures(text []byte) (all []figure, err error) {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var f figure
		if err := strictjson.Unmarshal(line, &f); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if slices.ContainsFunc(all, func(o figure) bool { return o.Name == f.Name }) {
			return nil, fmt.Errorf("line %d: %.100q is there already: give the file of one measurement", i+1, f.Name)
		}
		all = append(all, f)
	}
	return all, nil
}

// find returns the figure of this name, which must be positive.
func find(all []figure, name string) (figure, error) {
	i := slices.IndexFunc(all, func(f figure) bool { return f.Name == name })
	if i < 0 {
		return figure{}, fmt.Errorf("there is no figure %q", name)
	}
	if !positive(all[i].Value) {
		return all[i], fmt.Errorf("%s is %g: it must be positive", name, all[i].Value)
	}
	return all[i], nil
}

// Train is the result of bench train on one host.
type Train struct {
	Flavor          string  `json:"flavor"`
	Ranks           int     `json:"ranks"`
	Precision       string  `json:"precision"`
	Seq             int     `json:"seq"` // tokens per sequence
	TokensPerSecond float64 `json:"tokens_per_s"`
	FLOPS           float64 `json:"flops"`        // per second
	Memory          float64 `json:"memory_bytes"` // maximum resident bytes; 0: unknown
}

const rateFigure = "_tokens_per_s"

// ReadTrain reads the output of bench train --json. precision selects one of the measured
// precisions; empty: the first.
//
// The length of the sequences follows from the FLOPs per token, which depend on it through
// attention.
func ReadTrain(text []byte, precision string) (t Train, err error) {
	all, err := figures(text)
	if err != nil {
		return t, err
	}
	var measured []string
	for _, f := range all {
		if p, ok := strings.CutSuffix(f.Name, rateFigure); ok {
			measured = append(measured, p)
		}
	}
	if len(measured) == 0 {
		return t, fmt.Errorf("the report has no tokens per second: give a file of launcher bench train --json")
	}
	if precision == "" {
		precision = measured[0]
	}
	if !slices.Contains(measured, precision) {
		return t, fmt.Errorf("precision %.100q was not measured: use %s", precision, strings.Join(measured, ", "))
	}
	rate, err := find(all, precision+rateFigure)
	if err != nil {
		return t, err
	}
	tflops, err := find(all, precision+"_tflops")
	if err != nil {
		return t, err
	}
	t = Train{Flavor: rate.Flavor, Ranks: rate.Ranks, Precision: precision, TokensPerSecond: rate.Value, FLOPS: 1e12 * tflops.Value}
	if memory, err := find(all, precision+"_memory_bytes"); err == nil {
		t.Memory = memory.Value
	}
	t.Seq, err = seqOf(t)
	return t, err
}

// seqOf returns the length of sequences for which a token of the flavor has these FLOPs.
func seqOf(t Train) (int, error) {
	m, err := moe.FlavorByName(t.Flavor)
	if err != nil {
		return 0, err
	}
	fixed := m.FLOPsPerToken(0)
	seq := (t.FLOPS/t.TokensPerSecond - fixed) / (m.FLOPsPerToken(1) - fixed)
	if near := math.Round(seq); near >= 1 && near <= float64(m.MaxPositions) && math.Abs(seq-near) < 0.01 {
		return int(near), nil
	}
	return 0, fmt.Errorf("%.6g FLOPs per token match no sequence length of flavor %s: measure the flavor as it is, without --model flags", t.FLOPS/t.TokensPerSecond, t.Flavor)
}

// The names of a link's figures.
const (
	bandwidthFigure = "link_gbytes_per_s"
	latencyFigure   = "link_latency_us"
)

// ReadLink reads the output of bench link --json: GB/s in each direction, and microseconds.
func ReadLink(text []byte) (l Link, err error) {
	all, err := figures(text)
	if err != nil {
		return l, err
	}
	bandwidth, err := find(all, bandwidthFigure)
	if err != nil {
		return l, err
	}
	latency, err := find(all, latencyFigure)
	if err != nil {
		return l, err
	}
	return Link{Bandwidth: 1e9 * bandwidth.Value, Latency: 1e-6 * latency.Value}, nil
}
