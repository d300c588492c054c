package config

// How often a run evaluates, and what that costs.

// AutoEval as eval_every means about ten evaluations per run. See Config.EvalInterval.
const AutoEval = -1

const (
	// evaluations of a run, with those at its start and at its end
	autoEvals = 10
	// largest share of the run's FLOPs that automatic evaluations between start and end take
	mostEvalCost = 0.02
)

// EvalInterval returns the number of steps between evaluations; 0 means only at start and end.
func (c Config) EvalInterval() int {
	if c.EvalEvery != AutoEval {
		return c.EvalEvery
	}
	const between = autoEvals - 1
	affordable := int(min(c.evalSteps()/mostEvalCost, MaxCount)) + 1
	return max((c.Steps+between-1)/between, affordable)
}

// evaluations returns the number of evaluations of a run from its first step to its last.
func (c Config) evaluations() int {
	n := 2 // at start and end
	if every := c.EvalInterval(); every > 0 {
		n += (c.Steps - 1) / every
	}
	return n
}

// evalSteps returns the FLOPs of an evaluation, as a multiple of those of a training step. An
// evaluation has no backward pass, which takes two thirds of a step. Averaged weights are evaluated
// too.
func (c Config) evalSteps() float64 {
	once := float64(c.EvalSequences) / 3 / float64(max(c.Batch, 1))
	if c.EMA != 0 {
		return 2 * once
	}
	return once
}

// EvalCost returns the number of evaluations of a run from its first step to its last, and their
// FLOPs as a share of the FLOPs of all steps.
func (c Config) EvalCost() (evaluations int, share float64) {
	n := c.evaluations()
	return n, float64(n) * c.evalSteps() / float64(max(c.Steps, 1))
}
