package golden

import (
	"fmt"
	"math"

	"spmoe/moe"
	"spmoe/moe/optim"
)

// Deviation is the error of one optimizer step relative to the reference.
type Deviation struct {
	Loss     float64 // |loss - reference|, nats, before the step
	GradNorm float64 // |norm - reference| / reference, before clipping
}

// HasTrajectory reports whether the folder holds a training run.
func (f *Folder) HasTrajectory() bool { return f.tokens != nil }

// Replay trains on n ranks in FP32 as the reference did. It returns one Deviation per step.
func (f *Folder) Replay(n int) ([]Deviation, error) {
	tokens, shape, err := ids(f.tokens, "tokens")
	if err != nil {
		return nil, fmt.Errorf("train_tokens.safetensors: %w", err)
	}
	steps := f.trajectory.Steps
	if len(shape) != 3 || shape[0] < len(steps) || shape[1] < 1 || shape[2] < 2 {
		return nil, fmt.Errorf("train_tokens.safetensors: tokens has shape %v: [steps, batch, seq+1] with at least %d steps is expected", shape, len(steps))
	}
	if err := f.vocabulary("tokens", tokens); err != nil {
		return nil, err
	}
	batch, seq := shape[1], shape[2]-1
	opt := f.trajectory.Optimizer
	cfg := optim.Config{
		Name: "adamw", Beta1: opt.Betas[0], Beta2: opt.Betas[1], Eps: opt.Eps, WeightDecay: opt.WeightDecay, ClipNorm: opt.MaxGradNorm,
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("train_trajectory.json: %w", err)
	}
	rule, err := cfg.Rule()
	if err != nil {
		return nil, err
	}
	deviations := make([]Deviation, len(steps))
	err = f.run(n, seq, rule, cfg.ClipNorm, func(r *rank) error {
		lo, hi := r.share(batch)
		for i, want := range steps {
			b := windows(tokens[(i*batch+lo)*(seq+1):(i*batch+hi)*(seq+1)], seq)
			b.GlobalSequences = batch
			loss, err := r.model.Train(r.ex, b)
			if err != nil {
				return err
			}
			res, err := r.optim.Step(want.LR)
			if err != nil {
				return err
			}
			total, err := r.sum(loss.Sum)
			if err != nil {
				return err
			}
			if r.comm.Rank() == 0 {
				deviations[i] = Deviation{
					Loss:     math.Abs(total/float64(batch*seq) - want.Loss),
					GradNorm: math.Abs(res.GradNorm-want.GradNorm) / want.GradNorm,
				}
			}
		}
		return nil
	})
	return deviations, err
}

// windows splits rows of seq+1 tokens into inputs and targets.
func windows(rows []int32, seq int) moe.Batch {
	b := moe.Batch{Seq: seq}
	for ; len(rows) > 0; rows = rows[seq+1:] {
		b.Inputs = append(b.Inputs, rows[:seq]...)
		b.Targets = append(b.Targets, rows[1:seq+1]...)
	}
	return b
}

// The bounds of a replayed run. After the first steps, one flipped choice of an expert changes the
// loss of a small model by 3e-3, so a tight bound would reject correct programs.
const (
	earlySteps     = 8
	earlyLossBound = 1e-4
	lateLossBound  = 1e-2
)

// Lines summarizes a replay for people.
func Lines(deviations []Deviation) []Line {
	part := func(d []Deviation, from int, bound float64) Line {
		l := Line{Name: fmt.Sprintf("trajectory loss, steps %d-%d", from+1, from+len(d)), Bound: bound, Rule: "max |x - ref|"}
		var norm float64
		for _, step := range d {
			l.Error = max(l.Error, step.Loss)
			norm = max(norm, step.GradNorm)
		}
		l.Note = fmt.Sprintf("gradient norm within %.1e of the reference", norm)
		return l
	}
	early := min(earlySteps, len(deviations))
	lines := []Line{part(deviations[:early], 0, earlyLossBound)}
	if len(deviations) > early {
		lines = append(lines, part(deviations[early:], early, lateLossBound))
	}
	return lines
}
