package convergence

// The statistics of a comparison: paired differences over seeds, two one-sided tests against the
// margin, a two-sided test against zero with Holm's correction, and the verdicts.

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
)

// alpha bounds the chance of each wrong verdict: to call an arm equivalent whose difference is as
// large as the margin, and to call any arm different although none is.
const alpha = 0.05

// Verdicts on arms.
const (
	Baseline   = "baseline"
	Equivalent = "equivalent" // both losses differ by less than the margin
	Different  = "different"  // a loss differs, or the arm diverged and the baseline did not
	Undecided  = "undecided"  // neither is shown, or the baseline diverged
)

// Difference describes how much higher an arm's loss is than the baseline's with the same seed, as
// a fraction of the latter.
type Difference struct {
	Pairs       []float64  `json:"pairs"` // by seed
	Mean        float64    `json:"mean"`
	SD          float64    `json:"sd"`           // between seeds
	CI95        [2]float64 `json:"ci95"`         // of the mean, Student's t
	P           float64    `json:"p"`            // that the mean is zero, two-sided t-test
	Equivalence float64    `json:"equivalence"`  // p of two one-sided t-tests against the margin
	LeastMargin float64    `json:"least_margin"` // that these tests would have passed
}

// Result is a finished comparison. It is stored as result.json. Before the end there is no loss to
// see: to stop at a result that pleases would spoil the tests.
type Result struct {
	Command  string      `json:"command"` // continues the comparison
	Version  string      `json:"version"` // of the program
	Plan     string      `json:"plan_sha256"`
	Finished bool        `json:"finished"`
	Setup    Setup       `json:"setup"`
	Margin   float64     `json:"margin"` // of equivalence, as a fraction of the baseline's loss: 0.005
	Arms     []ArmResult `json:"arms"`   // the baseline first, the null arm last
}

// Setup is the part of the configuration that all arms share.
type Setup struct {
	Flavor     string   `json:"flavor"`
	Parameters int64    `json:"parameters"`
	Steps      int      `json:"steps"`
	Batch      int      `json:"batch"`
	Seq        int      `json:"seq"`
	Ranks      int      `json:"ranks"`
	Seeds      []uint64 `json:"seeds"`
	Tail       int      `json:"tail"` // steps that a run's final training loss averages
}

// ArmResult is one arm over all seeds.
type ArmResult struct {
	Name    string      `json:"name"`
	About   string      `json:"about"`
	Verdict string      `json:"verdict"`
	Train   *Difference `json:"train,omitempty"` // from the baseline; nil for the baseline itself, or if a loss is not finite
	HeldOut *Difference `json:"held_out,omitempty"`
	P       float64     `json:"p"`      // that neither loss differs
	Holm    float64     `json:"p_holm"` // the same, corrected over all arms
	Runs    []Run       `json:"runs"`
}

// Run is one arm trained with one seed.
type Run struct {
	Seed     uint64        `json:"seed"`
	Train    record.Number `json:"train_loss"`    // mean of the last Setup.Tail steps, nats per token
	HeldOut  record.Number `json:"held_out_loss"` // after the last step
	Diverged bool          `json:"diverged"`      // a loss is not finite, or no lower than that of a uniform guess

	log *record.Log
}

// difference compares losses with the baseline's, seed by seed. It returns nil if a number is not
// finite, because nothing can be stated then.
func difference(losses, baseline []float64, margin float64) *Difference {
	d := &Difference{P: 1, Equivalence: 1}
	for i, loss := range losses {
		d.Pairs = append(d.Pairs, loss/baseline[i]-1)
	}
	d.Mean, d.SD = meanSD(d.Pairs)
	if !report.Finite(d.Mean) || !report.Finite(d.SD) {
		return nil
	}
	distance, half := math.Abs(d.Mean), 0.0
	d.LeastMargin = distance
	if n := len(d.Pairs); n > 1 { // one seed says nothing about others
		t, e := studentsT(n-1), max(d.SD/math.Sqrt(float64(n)), math.SmallestNonzeroFloat64)
		half = t.quantile(0.975) * e
		d.P = 2 * t.cdf(-distance/e)
		// Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987. The nearer bound has the larger p.
		d.Equivalence = t.cdf((distance - margin) / e)
		d.LeastMargin += t.quantile(1-alpha) * e
	}
	d.CI95 = [2]float64{d.Mean - half, d.Mean + half}
	return d
}

// studentsT is Student's t distribution with that many degrees of freedom.
type studentsT float64

// cdf returns the probability of a value below t. With x = ν/(t² + ν) and the regularized
// incomplete beta function I, the probability beyond |t|, at one end, is I(x; ν/2, 1/2) / 2.
func (nu studentsT) cdf(t float64) float64 {
	tail := 0.5 * mathext.RegIncBeta(float64(nu)/2, 0.5, float64(nu)/(t*t+float64(nu)))
	if t > 0 {
		return 1 - tail
	}
	return tail
}

// quantile returns the t with a probability p, from 0 to 1, below it.
func (nu studentsT) quantile(p float64) float64 {
	x := mathext.InvRegIncBeta(float64(nu)/2, 0.5, 2*min(p, 1-p))
	return math.Copysign(math.Sqrt(float64(nu)*(1-x)/x), p-0.5)
}

// meanSD returns the mean and the standard deviation of a sample that is not empty. The latter is 0
// for one number.
func meanSD(xs []float64) (mean, sd float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	if len(xs) == 1 {
		return mean, 0
	}
	for _, x := range xs {
		sd += (x - mean) * (x - mean) / float64(len(xs)-1)
	}
	return mean, math.Sqrt(sd)
}

// holm corrects the p of several tests of one claim (Holm, Scand. J. Stat. 6, 1979).
func holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range ps {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(ps[i], ps[j]) })
	corrected, least := make([]float64, len(ps)), 0.0
	for rank, i := range order {
		least = max(least, min(1, float64(len(ps)-rank)*ps[i]))
		corrected[i] = least
	}
	return corrected
}

// judge fills in the runs of all arms, their differences from the baseline and their verdicts.
func (c *Comparison) judge(r *Result, tasks []task, logs []*record.Log) {
	for i, t := range tasks {
		a := &r.Arms[i%len(r.Arms)] // runs go seed by seed
		a.Runs = append(a.Runs, newRun(t, logs[i]))
	}
	base, others := &r.Arms[0], r.Arms[1:]
	ps := make([]float64, len(others))
	for i := range others {
		a := &others[i]
		a.Train = difference(losses(a.Runs, training), losses(base.Runs, training), c.Margin)
		a.HeldOut = difference(losses(a.Runs, validation), losses(base.Runs, validation), c.Margin)
		ps[i] = a.chance()
	}
	for i, p := range holm(ps) {
		others[i].P, others[i].Holm, others[i].Verdict = ps[i], p, others[i].judge(base, p)
	}
	r.Finished, base.Verdict = true, Baseline
}

func (a *ArmResult) diverged() bool {
	return slices.ContainsFunc(a.Runs, func(r Run) bool { return r.Diverged })
}

// chance returns p of the claim that an arm differs, before Holm's correction. Either of two losses
// may show it, so the smaller p counts twice. A divergence needs no test.
func (a *ArmResult) chance() float64 {
	switch {
	case a.diverged():
		return 0
	case a.Train == nil || a.HeldOut == nil:
		return 1
	}
	return min(1, 2*min(a.Train.P, a.HeldOut.P))
}

// judge returns the verdict on an arm whose p is corrected. Equivalence goes first: a difference
// may be real and yet within the margin.
func (a *ArmResult) judge(base *ArmResult, p float64) string {
	switch {
	case base.diverged():
		return Undecided
	case a.Train != nil && a.HeldOut != nil && !a.diverged() && max(a.Train.Equivalence, a.HeldOut.Equivalence) < alpha:
		return Equivalent
	case p < alpha:
		return Different
	}
	return Undecided
}

// tail returns the number of last steps that a run's final training loss averages: 5 % of them.
// Arms train on the same batches, so the mean only has to smooth the effect of rounding on single
// steps. It must be short, because the learning rate still decays.
func tail(steps int) int { return min(steps, max(10, steps/20)) }

// newRun returns the outcome of a finished run.
func newRun(t task, log *record.Log) Run {
	n := len(log.Steps)
	run := Run{
		Seed: t.seed, Train: record.Number(meanLoss(log.Steps, n-tail(n), n)), HeldOut: log.Done.HeldOut, log: log,
	}
	// Exploded weights lead to the loss of a uniform guess, and two such runs would be equivalent.
	uniform := 0.999 * math.Log(float64(t.cfg.Model.Vocab))
	run.Diverged = !report.Finite(float64(run.Train)) || !report.Finite(float64(run.HeldOut)) || float64(run.HeldOut) >= uniform
	return run
}

// meanLoss returns the mean training loss of steps [lo, hi). It is NaN if a step is missing or
// there are none.
func meanLoss(steps []record.Step, lo, hi int) float64 {
	if hi > len(steps) {
		return math.NaN()
	}
	var sum float64
	for _, s := range steps[lo:hi] {
		sum += float64(s.Loss)
	}
	return sum / float64(hi-lo)
}

// loss is one of the losses that verdicts are about.
type loss struct {
	name       string
	of         func(Run) float64
	difference func(ArmResult) *Difference
}

var (
	training   = loss{"training", func(r Run) float64 { return float64(r.Train) }, func(a ArmResult) *Difference { return a.Train }}
	validation = loss{"validation", func(r Run) float64 { return float64(r.HeldOut) }, func(a ArmResult) *Difference { return a.HeldOut }}
)

// losses returns one of the losses of all runs.
func losses(runs []Run, l loss) (all []float64) {
	for _, r := range runs {
		all = append(all, l.of(r))
	}
	return all
}
