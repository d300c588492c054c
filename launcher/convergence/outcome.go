package convergence

// From the records of runs to the result of their comparison.

import (
	"math"
	"slices"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/trainer"
)

// tail returns how many last steps are averaged for a run's final training loss: 5 % of them. Arms
// see the same batches, so that the mean need only be long enough for what rounding does to single
// steps, and short enough for a learning rate that still decays.
func tail(steps int) int { return min(steps, max(10, steps/20)) }

// warmAfter is how many first steps of a run, in which memory is allocated, do not count as warm.
const warmAfter = 5

// compare is what follows from the records of all tasks.
func (c *Comparison) compare(tasks []task, logs []*record.Log) (Result, error) {
	first := tasks[0].cfg
	config, err := trainer.ConfigTOML(first)
	if err != nil {
		return Result{}, err
	}
	result := Result{
		Command: c.Command, Margin: c.Margin,
		Setup: Setup{
			Flavor: first.Flavor, Parameters: first.Model.Count().Total, Steps: first.Steps, Batch: first.Batch, Seq: first.Seq,
			Ranks: c.Ranks, Jobs: c.Jobs, Seeds: c.seeds(), Tail: tail(first.Steps), Config: string(config),
		},
	}
	for _, r := range c.Recipes {
		arm := Arm{Name: r.Name, About: r.About, Ablation: r.Ablation}
		for i, t := range tasks {
			if t.recipe.Name == r.Name {
				arm.Runs = append(arm.Runs, c.summarize(t, logs[i]))
			}
		}
		arm.measureSpeed(first.Batch * first.Seq)
		arm.Times = arm.Runs[0].Log.Times
		if len(result.Arms) == 0 {
			arm.Verdict = Baseline
		} else {
			arm.judge(result.Arms[0], c.Margin)
		}
		result.Arms = append(result.Arms, arm)
	}
	result.where(logs)
	result.Spread.Train = spread(losses(result.Arms[0].Runs, trainLoss))
	result.Spread.HeldOut = spread(losses(result.Arms[0].Runs, heldOutLoss))
	return result, nil
}

// where says where the runs were made, and by which versions of the program.
func (r *Result) where(logs []*record.Log) {
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

// summarize returns what a run has come to.
func (c *Comparison) summarize(t task, log *record.Log) Run {
	run := Run{
		Seed: t.seed, Folder: t.cfg.Out, Train: finalLoss(log.Steps), HeldOut: log.Done.HeldOut, Skipped: log.Done.Skipped,
		Speed: speed(warm(log.Steps), t.cfg.Batch*t.cfg.Seq), Log: log,
	}
	run.Diverged = diverged(run, t.cfg.Model.Vocab)
	return run
}

// diverged says whether a loss is not finite, or the text was guessed no better than by drawing
// tokens blindly: exploded weights end there too, and two such runs would be equivalent.
func diverged(run Run, vocab int) bool {
	blind := 0.999 * math.Log(float64(vocab))
	return !finite(float64(run.Train)) || !finite(float64(run.HeldOut)) || float64(run.HeldOut) >= blind
}

// finalLoss is the mean of the last steps' losses; NaN if one of them is not finite or there is
// none.
func finalLoss(steps []record.Step) record.Number {
	last := steps[len(steps)-tail(len(steps)):]
	var sum float64
	for _, s := range last {
		sum += float64(s.Loss)
	}
	return record.Number(sum / float64(len(last)))
}

// warm returns the seconds of the steps that count for speeds.
func warm(steps []record.Step) []float64 {
	var seconds []float64
	for _, s := range steps {
		if s.Step > warmAfter {
			seconds = append(seconds, s.Seconds)
		}
	}
	return seconds
}

// speed returns the tokens a second of the median step; 0 if there is none that took time.
func speed(seconds []float64, tokens int) float64 {
	if len(seconds) == 0 || !(median(seconds) > 0) {
		return 0
	}
	return float64(tokens) / median(seconds)
}

func trainLoss(r Run) float64   { return float64(r.Train) }
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

// judge compares the arm with the baseline, of whose runs the first have its seeds.
func (a *Arm) judge(baseline Arm, margin float64) {
	pairs := baseline.Runs[:len(a.Runs)]
	a.Train = difference(losses(a.Runs, trainLoss), losses(pairs, trainLoss), margin)
	a.HeldOut = difference(losses(a.Runs, heldOutLoss), losses(pairs, heldOutLoss), margin)
	a.Agreement = agreement(a.Runs, pairs)
	failed := func(r Run) bool { return r.Diverged }
	switch {
	case slices.ContainsFunc(a.Runs, failed) || slices.ContainsFunc(pairs, failed) || a.Train == nil || a.HeldOut == nil:
		a.Verdict = NotEquivalent
	case len(a.Runs) < 2:
		a.Verdict = Undecided
	case a.Train.Within && a.HeldOut.Within:
		a.Verdict = Equivalent
	default:
		a.Verdict = NotEquivalent
	}
}

// agreement compares the choices of experts at the steps and layers that both runs of a seed have
// recorded.
func agreement(runs, baseline []Run) []Agreement {
	type place struct{ step, layer int }
	shares := map[place][]float64{}
	for i := range runs {
		there := map[place]record.Choices{}
		for _, c := range baseline[i].Log.Choices {
			there[place{c.Step, c.Layer}] = c
		}
		for _, c := range runs[i].Log.Choices {
			at := place{c.Step, c.Layer}
			if b, ok := there[at]; ok && b.TopK == c.TopK && b.Tokens() == c.Tokens() && c.Tokens() > 0 {
				shares[at] = append(shares[at], shared(c, b))
			}
		}
	}
	var all []Agreement
	for at, s := range shares {
		mean, _ := meanSD(s)
		all = append(all, Agreement{at.step, at.layer, mean})
	}
	slices.SortFunc(all, func(a, b Agreement) int {
		if a.Step != b.Step {
			return a.Step - b.Step
		}
		return a.Layer - b.Layer
	})
	return all
}

// shared returns the part of experts that both have chosen for a token, as a mean over tokens.
func shared(a, b record.Choices) float64 {
	n := 0
	for token := range a.Tokens() {
		for i := range a.TopK {
			for j := range b.TopK {
				if a.Expert(token, i) == b.Expert(token, j) {
					n++
				}
			}
		}
	}
	return float64(n) / float64(a.Tokens()*a.TopK)
}

// LastAgreement returns the agreement after the last step, as a mean over layers; ok is false if
// there is none.
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

// Quantized returns what the arm's runs have recorded of a kind of tensors, one of [record.Input],
// [record.Weight] and [record.Gradient], or of all kinds for "".
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

// MedianSQNR returns the median signal-to-quantization-noise ratio in dB of operands; NaN if none
// has one.
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

// Verdict is that of the arms that the comparison is about: one that is not equivalent decides,
// then one that is undecided. It is empty if there are none.
func (r Result) Verdict() (verdict string) {
	for i, a := range r.Arms {
		switch {
		case i == 0 || a.Ablation:
		case a.Verdict == NotEquivalent:
			return NotEquivalent
		case a.Verdict == Undecided || verdict == "":
			verdict = a.Verdict
		}
	}
	return verdict
}
