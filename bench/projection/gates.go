package projection

// What a projection must get right to be credible: counts, published FLOPs, exchange times, and the
// error on held-out rows.

import (
	"fmt"
	"math"

	"spmoe/moe"
)

// Gate is one requirement.
type Gate struct {
	What  string
	Value float64 // the result
	Least float64 // lower limit; for coverage, see Upper
	Upper float64 // upper limit
	Aim   Aim
	Unit  string
}

// Aim is what a requirement should reach, beyond its limits. Its zero value is no aim.
type Aim struct{ Least, Upper float64 }

// String returns the range in words.
func (a Aim) String() string {
	switch {
	case a == Aim{}:
		return ""
	case a.Least > 0:
		return fmt.Sprintf("%.2g to %.2g", a.Least, a.Upper)
	}
	return fmt.Sprintf("%g", a.Upper)
}

// Reached reports whether the value is within the aim.
func (g Gate) Reached() bool { return g.Value >= g.Aim.Least && g.Value <= g.Aim.Upper }

// Holds reports whether the value is within its limits.
func (g Gate) Holds() bool { return g.Value >= g.Least && g.Value <= g.Upper }

func below(what string, value, limit float64, unit string, aim float64) Gate {
	return Gate{What: what, Value: value, Upper: limit, Unit: unit, Aim: Aim{Upper: aim}}
}

// CountGates compare parameters and FLOPs with published ones.
func CountGates() (all []Gate) {
	for _, f := range []struct {
		name  string
		total float64
	}{{"671B", 671.03e9}, {"16B", 15.71e9}} {
		m, err := ModelByName(f.name, false)
		if err != nil {
			panic(err)
		}
		c := m.Count(4096)
		config, err := moe.FlavorByName(f.name)
		if err != nil {
			panic(err)
		}
		all = append(all,
			below(fmt.Sprintf("%s: parameters against those of the model that trains", f.name), math.Abs(c.Total-float64(config.Count().Total)), 0, "parameters", 0),
			below(fmt.Sprintf("%s: parameters against %.2f B published", f.name, f.total/1e9), math.Abs(c.Total/f.total-1), 5e-4, "", 0))
	}
	for _, f := range []struct {
		what   string
		mtp    bool
		causal bool
		flops  float64 // published TFLOP/s over published tokens/s
	}{
		{"Megatron GB300 without MTP: 961 TFLOP/s at 3848 tokens/s", false, true, 961e12 / 3848},
		{"Megatron GB200 with MTP: 1292 TFLOP/s at 4969 tokens/s", true, true, 1292e12 / 4969},
		{"TorchTitan H100, all scores: 162.82 TFLOP/s at 579 tokens/s", false, false, 162.82e12 / 579},
		{"DeepSeek H800: 385 TFLOP/s at 1541.7 tokens/s", false, true, 385e12 / (272.80e9 / 86400 / 2048)},
	} {
		m, err := ModelByName("671B", f.mtp)
		if err != nil {
			panic(err)
		}
		all = append(all, below("FLOPs per token, "+f.what, math.Abs(m.TrainFLOPs(4096, f.causal)/f.flops-1), 0.005, "", 0))
	}
	return all
}

// table7 holds the mean times of dispatch and combine in us, for 4096 tokens per rank on H100 with
// 400 Gb/s per GPU. Source: arXiv 2603.07685, table 7.
var table7 = []struct {
	ranks           int
	standard, dedup float64
}{
	{8, (1265 + 1277) / 2.0, (661 + 624) / 2.0}, {16, (5774 + 5628) / 2.0, (1485 + 1688) / 2.0}, {32, (8059 + 7815) / 2.0, (3064 + 3088) / 2.0}, {64, (9164 + 8727) / 2.0, (4626 + 4398) / 2.0},
}

// ExchangeGates compare the exchange's times with the published table. The limit applies to the row
// with the target's shape.
func ExchangeGates() (all []Gate, err error) {
	for _, row := range table7 {
		for _, dedup := range []bool{false, true} {
			r := Run{Model: "671B", GPU: "H100", GPUs: row.ranks, Precision: "bf16", Seq: 4096, Batch: row.ranks, MicroBatch: 1, TP: 1, PP: 1, VP: 1, EP: row.ranks,
				Recompute: "none", Stack: "megatron_alltoall", Routing: Uniform, Duplicate: 1, Dedup: &dedup}
			e, err := newEstimator(r, Central())
			if err != nil {
				return nil, err
			}
			name, want, limit := "standard", row.standard, 0.10 // beyond 8 ranks a fit of two numbers to three rows
			if dedup {
				name, want, limit = "de-duplicating", row.dedup, 0.20
			} else if row.ranks > 8 {
				name = "standard, a fit"
			}
			if row.ranks == 32 {
				limit = 0.05
			}
			all = append(all, below(fmt.Sprintf("exchange of 4096 tokens, EP%d on H100, %s: %.0f us published", row.ranks, name, want), math.Abs(1e3*e.exchange().Each/want-1), limit, "", 0.05))
		}
	}
	return all, nil
}

// fits returns the mean absolute error of the rows that are fits.
func (g Group) fits() float64 {
	sum, n := 0.0, 0
	for _, p := range g.Rows {
		if p.Fit != "" {
			sum, n = sum+math.Abs(p.Error), n+1
		}
	}
	return sum / float64(max(n, 1))
}

// Gates returns all requirements, with the results of a validation.
func Gates(groups []Group) ([]Gate, error) {
	all := CountGates()
	more, err := ExchangeGates()
	if err != nil {
		return nil, err
	}
	all = append(all, more...)
	for _, s := range Scenarios() {
		if s.Name != "as_run" && s.Name != "simple" {
			continue // the runs did not do the others, as far as the code reads
		}
		h, err := s.Project(Central())
		if err != nil {
			return nil, err
		}
		for i, name := range []string{"859", "918"} {
			all = append(all, below(fmt.Sprintf("%s on %s, calibrated on 651 only", s.Name, name), math.Abs(h.Error[i+1]), 0.08, "", 0.04))
		}
	}
	for _, g := range groups {
		switch g.Name {
		case "H1":
			worst, known := 0.0, 0.0
			for _, p := range g.Rows {
				if worst = max(worst, math.Abs(p.Error)); !p.Assumed {
					known = max(known, math.Abs(p.Error))
				}
			}
			all = append(all, below("H1, each step from the published one before: worst whose layouts are published", known, 0.20, "", 0.10),
				below("H1, each step from the published one before: worst of all", worst, 0.20, "", 0.10))
		case "H2":
			all = append(all, below("H2, Megatron on Blackwell: mean absolute error", g.MAPE, 0.15, "", 0.08))
		case "H4":
			all = append(all, below("H4, one node: mean absolute error", g.MAPE, 0.15, "", 0.07))
			all = append(all, below("H4, rows that are fits, mostly of SimuMax's kernels on SimuMax's machine: mean absolute error", g.fits(), 0.15, "", 0.07))
		}
	}
	steps, err := Ladder(LongLadder, Central())
	if err != nil {
		return nil, err
	}
	all = append(all, Gate{What: "H1, the GB200 ladder anchored at its first row only: published over predicted at its last", Value: LadderError(steps), Least: 0.5, Upper: 2, Aim: Aim{1 / 1.3, 1.3}})
	all = append(all, Gate{What: "80 % intervals: coverage of held-out rows", Value: Coverage(groups), Least: 0.65, Upper: 0.95, Aim: Aim{0.75, 0.85}})
	corrected, inside, err := LeaveOutError()
	if err != nil {
		return nil, err
	}
	all = append(all, below("corrected by the published rows of other configurations: mean absolute error, logarithm", corrected, 0.15, "", 0.12),
		Gate{What: "the same: share inside 80 % intervals", Value: inside, Least: 0.65, Upper: 0.95, Aim: Aim{0.75, 0.85}})
	_, mean, err := H200Products()
	if err != nil {
		return nil, err
	}
	return append(all, below("H200 products from shape and hardware file, half against half: mean absolute error", mean, 0.12, "", 0.06)), nil
}
