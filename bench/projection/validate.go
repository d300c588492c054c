package projection

// Predicted against published throughput: every row that can be modelled, in four held-out groups.

import (
	"fmt"
	"math"
)

// publishedRows is data/published.json.
type publishedRows struct {
	About    string     `json:"about"`
	Rows     []Row      `json:"rows"`
	Excluded []Excluded `json:"excluded"`
}

// Row is one published throughput.
type Row struct {
	ID string `json:"id"`
	// H1 to H4, calibration, headline; empty: only the base of another row
	Group     string  `json:"group"`
	From      string  `json:"from"` // the row whose published figure this one is predicted from
	Published float64 `json:"published"`
	Source    string  `json:"source"`
	Note      string  `json:"note"`
	// the layout that it is predicted from is not published: left out of discrepancies
	Assumed bool `json:"assumed"`
	Run     Run  `json:"run"`
}

// Excluded lists published rows that are not predicted, and why.
type Excluded struct {
	Rows string `json:"rows"`
	Why  string `json:"why"`
}

// Prediction is a published row with the model's prediction.
type Prediction struct {
	Row
	Predicted float64    // tokens/s per GPU
	Interval  [2]float64 // 80 %
	Error     float64    // signed: predicted over published, minus 1
	Inside    bool       // the published figure lies in the interval
	Why       string     // the largest term, for a miss
}

// Group summarizes the predictions of a group.
type Group struct {
	Name, About string
	Rows        []Prediction
	MAPE, Bias  float64
	Coverage    float64
	// discrepancy of its intervals, from the residuals of the other groups
	Sigma float64
}

// The groups of held-out rows.
var groupNames = []struct{ name, about string }{
	{"H1", "same framework: each step of a ladder from the step before"},
	{"H2", "Megatron on Blackwell, residual 0"},
	{"H3", "Hopper, residual 0"},
	{"H4", "one node, residual 0"},
}

// Rows returns the published rows.
func Rows() []Row { return data().published.Rows }

// ExcludedRows returns the rows that are not predicted.
func ExcludedRows() []Excluded { return data().published.Excluded }

func rowByID(id string) Row {
	for _, r := range Rows() {
		if r.ID == id {
			return r
		}
	}
	panic(fmt.Sprintf("projection: no published row %q", id))
}

// predict returns the tokens/s of a row. A row that is predicted from another row inherits what the
// model does not explain there.
func predict(r Row, set Settings) (float64, error) {
	if r.From == "" {
		return throughput(r.Run, set)
	}
	from := rowByID(r.From)
	residual, err := Calibrate(from.Run, from.Published, set)
	if err != nil {
		return 0, err
	}
	run := r.Run
	run.Residual = residual
	return throughput(run, set)
}

// Validate predicts all held-out rows. Intervals use the given number of samples. The discrepancy
// of a group comes from the other groups' residuals.
func Validate(samples int, seed uint64) ([]Group, error) {
	var groups []Group
	squares, counts := map[string]float64{}, map[string]int{}
	for _, g := range groupNames {
		group := Group{Name: g.name, About: g.about}
		for _, r := range Rows() {
			if r.Group != g.name {
				continue
			}
			if err := r.Run.Check(); err != nil {
				return nil, fmt.Errorf("%s: %w", r.ID, err)
			}
			p := Prediction{Row: r}
			var err error
			if p.Predicted, err = predict(r, Central()); err != nil {
				return nil, fmt.Errorf("%s: %w", r.ID, err)
			}
			p.Error = p.Predicted/r.Published - 1
			residual := math.Log(p.Predicted / r.Published)
			if !r.Assumed {
				squares[g.name] += residual * residual
				counts[g.name]++
			}
			if p.Why, err = largest(r); err != nil {
				return nil, err
			}
			group.Rows = append(group.Rows, p)
		}
		groups = append(groups, group)
	}
	for i := range groups {
		g := &groups[i]
		g.Sigma = discrepancy(g.Name, squares, counts)
		if err := g.sumUp(samples, seed); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// discrepancy returns the spread of the residuals of all groups except one and Hopper, whose
// frameworks differ from the target's.
func discrepancy(without string, squares map[string]float64, counts map[string]int) float64 {
	sum, n := 0.0, 0
	for name, s := range squares {
		if name != without && (name == "H1" || name == "H2" || name == "H4") {
			sum, n = sum+s, n+counts[name]
		}
	}
	return math.Sqrt(sum / float64(max(n, 1)))
}

func (g *Group) sumUp(samples int, seed uint64) error {
	for i := range g.Rows {
		p := &g.Rows[i]
		var err error
		if p.Interval, err = interval(samples, seed, g.Sigma, func(s Settings) (float64, error) { return predict(p.Row, s) }); err != nil {
			return fmt.Errorf("%s: %w", p.ID, err)
		}
		p.Inside = p.Interval[0] <= p.Published && p.Published <= p.Interval[1]
		n := float64(len(g.Rows))
		g.MAPE += math.Abs(p.Error) / n
		g.Bias += p.Error / n
		if p.Inside {
			g.Coverage += 1 / n
		}
	}
	return nil
}

// largest names the largest term of a row.
func largest(r Row) (string, error) {
	e, err := newChecked(r.Run, Central())
	if err != nil {
		return "", err
	}
	c := e.total()
	best := Symbol(0)
	for s, ms := range c {
		if ms > c[best] {
			best = Symbol(s)
		}
	}
	return fmt.Sprintf("largest term: %s, %.0f %%", best.About(), 100*c[best]/c.sum()), nil
}

// Coverage returns the share of all groups' published figures that lie in their intervals.
func Coverage(groups []Group) float64 {
	inside, n := 0, 0
	for _, g := range groups {
		for _, p := range g.Rows {
			n++
			if p.Inside {
				inside++
			}
		}
	}
	return float64(inside) / float64(max(n, 1))
}
