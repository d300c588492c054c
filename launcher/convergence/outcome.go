package convergence

// The result of a comparison, computed from the records of its runs.

import (
	"math"
	"slices"
	"strings"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
)

// tail returns the number of last steps that a run's final training loss averages: 5 % of them.
// Arms train on the same batches, so the mean only has to smooth the effect of rounding on single
// steps. It must be short, because the learning rate still decays.
func tail(steps int) int { return min(steps, max(10, steps/20)) }

// warmAfter is the number of first steps that speeds leave out, because memory is allocated in
// them.
const warmAfter = 5

// compare computes the result from the records of all tasks.
func (c *Comparison) compare(tasks []task, logs []*record.Log) (Result, error) {
	first := tasks[0].cfg
	config, err := config.TOML(first)
	if err != nil {
		return Result{}, err
	}
	result := Result{
		Command: c.Command, Varied: c.Varied, Margin: c.Design.Margin, Looks: c.Design.Looks,
		Setup: Setup{
			Flavor: first.Flavor, Parameters: first.Model.Count().Total, Steps: first.Steps, Batch: first.Batch, Seq: first.Seq,
			Ranks: c.Ranks, Jobs: c.Jobs, Tail: tail(first.Steps), EMA: first.EMA, Config: string(config),
		},
	}
	for _, r := range c.Recipes {
		arm := Arm{Name: r.Name, About: r.About, Runs: c.runsOf(r.Name, tasks, logs)}
		cfg := c.config(r, first.Seed)
		arm.measureSpeed(cfg.Batch * cfg.Seq)
		arm.Times = arm.Runs[0].Log.Times
		if len(result.Arms) == 0 {
			arm.Verdict = Baseline
		} else {
			arm.judge(result.Arms[0], c.Design)
			arm.Averaged = c.judgeAverage(arm, result.Arms[0])
		}
		result.Arms = append(result.Arms, arm)
	}
	for _, run := range result.Arms[0].Runs {
		result.Setup.Seeds = append(result.Setup.Seeds, run.Seed)
	}
	result.setOrigin(logs)
	result.Spread.Train = spread(losses(result.Arms[0].Runs, trainLoss))
	result.Spread.HeldOut = spread(losses(result.Arms[0].Runs, heldOutLoss))
	return result, nil
}

// runsOf returns the runs of a recipe, seed by seed.
func (c *Comparison) runsOf(recipe string, tasks []task, logs []*record.Log) (runs []Run) {
	for i, t := range tasks {
		if t.recipe.Name == recipe {
			runs = append(runs, c.summarize(t, logs[i]))
		}
	}
	return runs
}

// setOrigin records the machines of the runs and the versions of the program.
func (r *Result) setOrigin(logs []*record.Log) {
	var versions []string
	for _, log := range logs {
		for _, s := range log.Starts {
			if m := (Machine{s.CPU, s.Tier, s.Cores}); !slices.Contains(r.Machines, m) {
				r.Machines = append(r.Machines, m)
			}
			if !slices.Contains(versions, s.Version) {
				versions = append(versions, s.Version)
			}
		}
	}
	r.Version = strings.Join(versions, "; ")
}

// summarize returns the outcome of a run.
func (c *Comparison) summarize(t task, log *record.Log) Run {
	run := Run{
		Seed: t.seed, Folder: t.cfg.Out, Train: finalLoss(log.Steps), HeldOut: log.Done.HeldOut, Averaged: log.Done.Averaged, Skipped: log.Done.Skipped,
		Speed: speed(warm(log.Steps), t.cfg.Batch*t.cfg.Seq), Log: log,
	}
	run.Diverged = diverged(run, t.cfg.Model.Vocab)
	return run
}

// diverged reports whether a loss is not finite or no better than a uniform guess. Exploded weights
// lead to such losses too, and two such runs would count as equivalent.
func diverged(run Run, vocab int) bool {
	uniform := 0.999 * math.Log(float64(vocab))
	return !finite(float64(run.Train)) || !finite(float64(run.HeldOut)) || float64(run.HeldOut) >= uniform
}

// finalLoss returns the mean loss of the last steps. It is NaN if there are no steps, or if a loss
// is not finite.
func finalLoss(steps []record.Step) record.Number {
	n := len(steps)
	return record.Number(meanLoss(steps, n-tail(n), n))
}

// warm returns the durations, in seconds, of the steps that count for speeds.
func warm(steps []record.Step) []float64 {
	var seconds []float64
	for _, s := range steps {
		if s.Step > warmAfter {
			seconds = append(seconds, s.Seconds)
		}
	}
	return seconds
}

// speed returns the tokens per second of the median step, or 0 if no step took time.
func speed(seconds []float64, tokens int) float64 {
	if len(seconds) == 0 || !(median(seconds) > 0) {
		return 0
	}
	return float64(tokens) / median(seconds)
}

func trainLoss(r Run) float64 { return float64(r.Train) }

func heldOutLoss(r Run) float64 { return float64(r.HeldOut) }

func losses(runs []Run, of func(Run) float64) []float64 {
	var all []float64
	for _, r := range runs {
		all = append(all, of(r))
	}
	return all
}

func (a *Arm) measureSpeed(tokens int) {
	var seconds []float64
	for _, r := range a.Runs {
		seconds = append(seconds, warm(r.Log.Steps)...)
	}
	a.Speed = speed(seconds, tokens)
}

// judge compares the arm with the baseline. The first runs of the baseline have the arm's seeds.
func (a *Arm) judge(baseline Arm, d design.Design) {
	pairs := baseline.Runs[:len(a.Runs)]
	a.Train = difference(losses(a.Runs, trainLoss), losses(pairs, trainLoss), d)
	a.HeldOut = difference(losses(a.Runs, heldOutLoss), losses(pairs, heldOutLoss), d)
	a.Course, a.TextError = course(a.Runs, pairs), textError(a.Runs, pairs)
	a.Verdict = a.verdict(pairs, d, a.Train, a.HeldOut)
}

// verdict returns the verdict on losses of the arm. Some of them are nil if a loss is not finite.
func (a *Arm) verdict(pairs []Run, d design.Design, losses ...*Difference) string {
	failed := func(r Run) bool { return r.Diverged }
	switch {
	case a.divergesAlone(pairs):
		return Different
	case slices.ContainsFunc(pairs, failed) || slices.Contains(losses, nil):
		return Undecided
	}
	var samples []design.Sample
	for _, loss := range losses {
		samples = append(samples, loss.sample())
	}
	return d.Judge(len(a.Runs), samples...)
}

// divergesAlone reports whether the arm diverged with a seed with which the baseline did not.
func (a *Arm) divergesAlone(baseline []Run) bool {
	for i, run := range a.Runs {
		if run.Diverged && !baseline[i].Diverged {
			return true
		}
	}
	return false
}

// LastAgreement returns the agreement after the last step, as a mean over layers. It returns false
// if there is none.
func (a Arm) LastAgreement() (share float64, ok bool) {
	if len(a.Agreement) == 0 {
		return 0, false
	}
	last, n := a.Agreement[len(a.Agreement)-1].Step, 0
	for _, at := range a.Agreement {
		if at.Step == last {
			share += at.Share
			n++
		}
	}
	return share / float64(n), true
}

// Quantized returns the arm's records of one kind of tensor: [record.Input], [record.Weight] or
// [record.Gradient]. "" stands for all kinds.
func (a Arm) Quantized(kind string) (all []record.Quantized) {
	for _, run := range a.Runs {
		if run.Log == nil {
			continue
		}
		for _, q := range run.Log.Quantized {
			if kind == "" || q.Tensor == kind {
				all = append(all, q)
			}
		}
	}
	return all
}

// MedianSQNR returns the median signal-to-quantization-noise ratio of operands in dB. It is NaN if
// no operand has one.
func MedianSQNR(operands []record.Quantized) float64 {
	var all []float64
	for _, q := range operands {
		if v := q.SQNR(); !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return math.NaN()
	}
	return median(all)
}

// Verdict returns the verdict over all arms: different if any arm is, else undecided if any is,
// else equivalent. It is "" if there is only the baseline.
func (r Result) Verdict() (verdict string) {
	for i, a := range r.Arms {
		switch {
		case i == 0 || a.Ablation:
		case a.Verdict == Different:
			return Different
		case a.Verdict == Undecided || verdict == "":
			verdict = a.Verdict
		}
	}
	return verdict
}

func averagedLoss(r Run) float64 { return float64(r.Averaged) }

// judgeAverage returns the second outcome of an arm, or nil if the comparison has none.
func (c *Comparison) judgeAverage(a, baseline Arm) *Averaged {
	if c.Config.EMA == 0 {
		return nil
	}
	pairs := baseline.Runs[:len(a.Runs)]
	d := difference(losses(a.Runs, averagedLoss), losses(pairs, averagedLoss), c.Design)
	return &Averaged{d, a.verdict(pairs, c.Design, d)}
}
