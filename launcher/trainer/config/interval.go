package config

// Settings that users write as text: the interval between checkpoints, and times.

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// Interval is a number of steps, or a time. Positive values count steps, negative ones nanoseconds;
// 0 is never. In a config file it is 500, "500", "10m" or 0.
type Interval int64

// Every returns the interval of a time, which must be positive.
func Every(d time.Duration) Interval { return Interval(-d) }

// Steps returns the number of steps; 0 if the interval is a time.
func (i Interval) Steps() int { return int(max(i, 0)) }

// Time returns the time; 0 if the interval is a number of steps.
func (i Interval) Time() time.Duration { return time.Duration(-min(i, 0)) }

// String implements [fmt.Stringer].
func (i Interval) String() string {
	if i.Time() >= leastInterval {
		return shortTime(i.Time())
	}
	return strconv.FormatInt(int64(i), 10)
}

// leastInterval is the shortest time between checkpoints.
const leastInterval = time.Second

// errInterval says what an interval is.
var errInterval = errors.New("it must be a number of steps (500), a time (10m, 90s, 2h) or 0")

// UnmarshalText implements [encoding.TextUnmarshaler]. Config files may have a whole number.
func (i *Interval) UnmarshalText(text []byte) error {
	if steps, err := strconv.ParseInt(string(text), 10, 64); err == nil && steps >= 0 && steps <= MaxCount {
		*i = Interval(steps)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d < leastInterval {
		return errInterval
	}
	*i = Every(d)
	return nil
}

// MarshalText implements [encoding.TextMarshaler].
func (i Interval) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// Duration is a time, such as 10m.
type Duration time.Duration

// String implements [fmt.Stringer].
func (d Duration) String() string { return shortTime(time.Duration(d)) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return errors.New("it must be a time such as 10m or 90s, or 0s")
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// shortTime formats a time without units that are zero: 10m, 1h30m.
func shortTime(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Due reports whether an event that happens every n steps happens at this step.
func Due(n, step int) bool { return n > 0 && step%n == 0 }

// How often a run evaluates, and what that costs.

// AutoEval as eval_every means about ten evaluations per run, and five of a short one. See
// Config.EvalInterval.
const AutoEval = -1

const (
	// evaluations of a run, with those at its start and at its end
	autoEvals = 10
	// largest share of the run's FLOPs that automatic evaluations between start and end take, and
	// that of a short run, which has fewEvals so that its loss has a course
	mostEvalCost, mostShortCost = 0.02, 0.1
	fewEvals, leastBetween      = 5, 10
)

// EvalInterval returns the number of steps between evaluations; 0 means only at start and end.
func (c Config) EvalInterval() int {
	if c.EvalEvery != AutoEval {
		return c.EvalEvery
	}
	const between = autoEvals - 1
	affordable := int(min(c.evalSteps()/mostEvalCost, MaxCount)) + 1
	few := max((c.Steps+fewEvals-2)/(fewEvals-1), leastBetween, int(min(c.evalSteps()/mostShortCost, MaxCount))+1)
	return max((c.Steps+between-1)/between, min(affordable, few))
}

// evalSteps returns the FLOPs of an evaluation, as a multiple of those of a training step. An
// evaluation has no backward pass, which takes two thirds of a step.
func (c Config) evalSteps() float64 {
	return float64(c.EvalSequences) / 3 / float64(max(c.Batch, 1))
}

// EvalCost returns the number of evaluations of a run from its first step to its last, and their
// FLOPs as a share of the FLOPs of all steps.
func (c Config) EvalCost() (evaluations int, share float64) {
	n := 2 // at start and end
	if every := c.EvalInterval(); every > 0 {
		n += (c.Steps - 1) / every
	}
	return n, float64(n) * c.evalSteps() / float64(max(c.Steps, 1))
}
