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
	// why it is a fit and no test: a number of the model comes from the same source
	Fit string `json:"fit"`
	Run Run    `json:"run"`
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
	Weight    float64    // rows with one prediction count once, together; 0: a fit, which does not count
}

// Group summarizes the predictions of a group.
type Group struct {
	Name, About string
	Rows        []Prediction
	// of distinct predictions that are no fits
	Distinct   int
	MAPE, Bias float64
	Coverage   float64
	// discrepancy of all groups' residuals; an interval leaves out those of its own prediction
	Sigma float64
}

// The groups of held-out rows.
var groupNames = []struct{ name, about string }{
	{"H1", "same framework: each step of a ladder from the published figure of the step before"},
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
// of an interval comes from the residuals of the other rows.
func Validate(samples int, seed uint64) ([]Group, error) {
	var groups []Group
	for _, g := range groupNames {
		group := Group{Name: g.name, About: g.about}
		if err := group.predict(); err != nil {
			return nil, err
		}
		groups = append(groups, group)
	}
	for i := range groups {
		g := &groups[i]
		g.Sigma = discrepancy(0, groups)
		if err := g.sumUp(samples, seed, groups); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// predict fills the group's rows, without intervals.
func (g *Group) predict() error {
	for _, r := range Rows() {
		if r.Group != g.Name {
			continue
		}
		p := Prediction{Row: r}
		err := r.Run.Check()
		if err == nil {
			p.Predicted, err = predict(r, Central())
		}
		if err == nil {
			p.Why, err = largest(r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.ID, err)
		}
		p.Error = p.Predicted/r.Published - 1
		g.Rows = append(g.Rows, p)
	}
	g.weigh()
	return nil
}

// residuals returns the sum of the squared logarithmic errors of rows with a published layout, and
// the sum of their weights, without those of one prediction.
func (g *Group) residuals(without float64) (squares, weights float64) {
	for _, p := range g.Rows {
		if !p.Assumed && p.Predicted != without {
			d := math.Log(p.Predicted / p.Published)
			squares, weights = squares+p.Weight*d*d, weights+p.Weight
		}
	}
	return squares, weights
}

// discrepancy returns the spread of the residuals of all groups except Hopper, whose frameworks
// differ from the target's, without those of one prediction, and of all with 0.
func discrepancy(without float64, groups []Group) float64 {
	sum, n := 0.0, 0.0
	for _, g := range groups {
		if g.Name == "H3" {
			continue
		}
		squares, weights := g.residuals(without)
		sum, n = sum+squares, n+weights
	}
	return math.Sqrt(sum / max(n, 1))
}

// weigh sets the weights of rows: those with one prediction have one in sum, and fits have none.
func (g *Group) weigh() {
	same := map[float64]float64{}
	for _, p := range g.Rows {
		if p.Fit == "" {
			same[p.Predicted]++
		}
	}
	g.Distinct = len(same)
	for i, p := range g.Rows {
		if p.Fit == "" {
			g.Rows[i].Weight = 1 / same[p.Predicted]
		}
	}
}

func (g *Group) sumUp(samples int, seed uint64, groups []Group) error {
	for i := range g.Rows {
		p := &g.Rows[i]
		var err error
		if p.Interval, err = interval(samples, seed, discrepancy(p.Predicted, groups), func(s Settings) (float64, error) { return predict(p.Row, s) }); err != nil {
			return fmt.Errorf("%s: %w", p.ID, err)
		}
		p.Inside = p.Interval[0] <= p.Published && p.Published <= p.Interval[1]
		share := p.Weight / float64(g.Distinct)
		g.MAPE += share * math.Abs(p.Error)
		g.Bias += share * p.Error
		if p.Inside {
			g.Coverage += share
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

// Coverage returns the share of all groups' published figures that lie in their intervals, by
// distinct prediction.
func Coverage(groups []Group) float64 {
	inside, n := 0.0, 0
	for _, g := range groups {
		inside, n = inside+g.Coverage*float64(g.Distinct), n+g.Distinct
	}
	return inside / float64(max(n, 1))
}

// LongLadder is the last row of the longest ladder: TorchTitan on GB200.
const LongLadder = "titan-gb200-te"

// Step is a row of a ladder of releases or options.
type Step struct {
	ID                   string
	Published, Predicted float64 // tokens/s per GPU
}

// Ladder predicts the rows that lead, one from another, to the named one. Its residual is fitted to
// the first of them only.
func Ladder(last string, set Settings) ([]Step, error) {
	var rows []Row
	for id := last; id != ""; id = rows[0].From {
		rows = append([]Row{rowByID(id)}, rows...)
	}
	residual, err := Calibrate(rows[0].Run, rows[0].Published, set)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, r := range rows {
		r.Run.Residual = residual
		predicted, err := throughput(r.Run, set)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.ID, err)
		}
		steps = append(steps, Step{r.ID, r.Published, predicted})
	}
	return steps, nil
}

// LadderError returns the factor by which the gain from a ladder's first step to its last is
// underpredicted, or overpredicted if it is below 1.
func LadderError(steps []Step) float64 {
	last := steps[len(steps)-1]
	return last.Published / last.Predicted
}
