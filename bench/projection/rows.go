package projection

// Published throughputs, what was predicted blind, and what the fit predicts with a framework left
// out.

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Row is one published throughput.
type Row struct {
	ID        string  `json:"id"`
	Set       int     `json:"set"`  // 1 and 2: the blind sets; 0: known or measured before
	Tier      string  `json:"tier"` // of its set
	Framework string  `json:"framework"`
	Date      string  `json:"date"` // of the software, as 26.02
	Published float64 `json:"published"`
	Source    string  `json:"source"`
	Note      string  `json:"note,omitempty"`
	Unfitted  string  `json:"unfitted,omitempty"` // why it is neither fitted nor scored
	Run       Run     `json:"run"`
	Blind     *Blind  `json:"blind,omitempty"`
}

// Blind is what an earlier formula predicted before the row was opened: a median and an 80 %
// interval.
type Blind struct {
	Tokens float64 `json:"tokens"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Rows returns all rows.
func Rows() []Row { return data().rows }

// Scores is data/scores.json, which fit/fit.py writes.
type Scores struct {
	Constants string             `json:"constants"` // SHA-256 of the fitted table
	Widths    map[string]float64 `json:"widths"`    // half the logarithmic width of an interval, by kind of run
	Groups    []Score            `json:"groups"`
	// ln(formula / published) of each row, fitted and with its framework left out
	Rows map[string][2]float64 `json:"rows"`
}

// Score is how far predictions of some rows are off: of the logarithm.
type Score struct {
	Name   string  `json:"name"`
	Rows   int     `json:"rows"`
	Error  float64 `json:"error"`  // mean, absolute
	Bias   float64 `json:"bias"`   // mean
	Inside float64 `json:"inside"` // share of rows inside their 80 % interval
	Width  float64 `json:"width"`  // mean logarithmic width
}

// PublishedScores returns the scores of the fit.
func PublishedScores() Scores { return data().scores }

// LeftOut is the name of the score of rows whose framework is left out.
const LeftOut = "each framework left out"

// Group returns a score by its name.
func (s Scores) Group(name string) Score {
	i := slices.IndexFunc(s.Groups, func(g Score) bool { return g.Name == name })
	if i < 0 {
		panic("projection: data/scores.json lacks " + name)
	}
	return s.Groups[i]
}

// Limits says in a line how far to trust a projection.
func Limits() string {
	return fmt.Sprintf("runs of frameworks that the constants were not fitted to are off by %.0f %% on average; software alone makes a factor of five on one GPU",
		100*data().scores.Group(LeftOut).Error)
}

// Beside returns at most n published rows that resemble a run: the same model on the same GPU, the
// likest first.
func Beside(r Run, n int) []Row {
	alike := func(o Run) (same int) {
		for _, equal := range []bool{
			r.GPUs == o.GPUs, r.Precision == o.Precision, r.Seq == o.Seq, r.Software == o.Software, r.Exchange == o.Exchange,
			r.TP == o.TP, r.PP == o.PP, r.EP == o.EP, r.Recompute == o.Recompute, r.FSDP == o.FSDP, r.Layers == o.Layers,
		} {
			if equal {
				same++
			}
		}
		return same
	}
	var list []Row
	for _, row := range Rows() {
		if row.Run.Model == r.Model && strings.EqualFold(row.Run.GPU, r.GPU) {
			list = append(list, row)
		}
	}
	slices.SortStableFunc(list, func(a, b Row) int { return alike(b.Run) - alike(a.Run) })
	return list[:min(n, len(list))]
}

// Fits has what fits the constants: the rows that are fitted, as runs whose counts are done.
type Fits struct {
	Rows      []Row
	estimates []estimate
}

// NewFits prepares the fitted rows.
func NewFits() (f Fits, err error) {
	for _, row := range Rows() {
		if row.Unfitted != "" {
			continue
		}
		e, err := newEstimate(row.Run)
		if err != nil {
			return f, err
		}
		f.Rows, f.estimates = append(f.Rows, row), append(f.estimates, e)
	}
	return f, nil
}

// Kinds returns the kind of each row.
func (f Fits) Kinds() (all []string) {
	for _, e := range f.estimates {
		all = append(all, e.kind())
	}
	return all
}

// Predict returns ln(tokens/s per GPU) of each row with these values, in the order of [Table].
func (f Fits) Predict(values []float64) (all []float64) {
	k := Constants{}
	for i, c := range Table() {
		c.Value = values[i]
		k[c.Name] = c
	}
	for _, e := range f.estimates {
		c := k.cost(e.run, e.gpu, e.work)
		all = append(all, math.Log(1e3/c.sum()))
	}
	return all
}
