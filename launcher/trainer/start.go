package trainer

// The state before a rank's first step: from the vaults, from a checkpoint, or initial weights,
// which are random or from another model.

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/collective"
	"spmoe/internal/fault"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/trainer/state"
	"spmoe/launcher/weights"
	"spmoe/tensor"
)

// begin sets this rank to the state before its first step. It is collective.
func (r *rank) begin() error {
	if step, ok := r.comm.Kept(); ok {
		r.vault.Resumed = true
		return r.recall(step)
	}
	if err := r.identify(); err != nil {
		return err
	}
	r.Optim.Use(r.Progress.Step)
	if r.vault.Heals() { // a run that starts over finds an older state in the vault
		for x := range r.Optim.Summed {
			x.Data.Zero()
		}
	}
	var err error
	if from := r.job.resume; from != nil {
		err = restore(r.TrainState, from, r.comm)
	} else {
		err = r.job.initialize(r.TrainState, r.ex)
	}
	if err != nil {
		return err
	}
	if err := r.comm.Barrier(); err != nil { // all ranks have read
		return err
	}
	return r.job.closeStart()
}

// identify gives a run its id: that of the checkpoint it resumes, if that has one. Otherwise rank 0
// makes it up. It is collective.
func (r *rank) identify() error {
	id := make([]byte, runIDBytes)
	if _, err := hex.Decode(id, []byte(r.Progress.Run)); err != nil || r.Progress.Run == "" {
		rand.Read(id)
	}
	if r.comm.Rank() != 0 {
		clear(id)
	}
	if err := collective.AllReduce(r.comm, id, collective.Max); err != nil {
		return err
	}
	r.Progress.Run = hex.EncodeToString(id)
	return nil
}

const runIDBytes = 8

// recall sets this rank to the state after a step that all vaults hold.
func (r *rank) recall(step int64) error {
	fault.Point(fault.BeforeBack)
	defer fault.Point(fault.AfterBack)
	n, err := r.vault.Recall(step)
	if err != nil {
		return err
	}
	fault.Point(fault.InBack)
	r.Progress, r.watch.Rates.Peak = n.Progress, n.Peak
	r.Optim.Use(r.Progress.Step)
	r.Optim.SetSteps(r.Progress.OptimizerSteps)
	r.stored = n.Sums
	for i, route := range r.Balancer.Routings {
		copy(route.Bias.F32(), n.Biases[i])
	}
	if err := r.Data.Loader.Restore(r.Progress.Loader); err != nil {
		return err
	}
	return r.Optim.Publish()
}

// readState reads the tensors of the state from a checkpoint. What is then in the memory of all
// ranks must have the checksums that training had when it was saved. It is collective.
func readState(s *state.TrainState, from *checkpoint.Reader, c *collective.Comm) error {
	want, mine := from.Sums(), s.Pieces()
	slices.SortFunc(mine, func(a, b checkpoint.Piece) int { return strings.Compare(a.Name, b.Name) }) // as in shards
	kinds := slices.Sorted(maps.Keys(want))
	have := make([]uint32, 2*len(kinds)) // checksums, and numbers of the pieces that they are of
	if !s.First {                        // the first of the ranks with these biases counts them
		for _, p := range s.Biases() {
			if err := readPiece(from, p); err != nil {
				return err
			}
		}
	}
	for _, p := range mine {
		if err := readPiece(from, p); err != nil {
			return err
		}
		converted := (from.DType(p.Name) == safetensors.BF16) != (p.BF16 != nil)
		if kind := slices.Index(kinds, checkpoint.Kind(p.Name)); kind >= 0 && !converted {
			have[kind] += p.Sum()
			have[len(kinds)+kind]++
		}
	}
	if err := collective.AllReduce(c, have, collective.Sum); err != nil {
		return err
	}
	for i, kind := range kinds {
		if have[len(kinds)+i] > 0 && have[i] != want[kind] {
			return fmt.Errorf("%s adds up to %08x in memory, training had %08x: this machine's memory is not reliable: try again, or use another one", kind, have[i], want[kind])
		}
	}
	return nil
}

// restore reads the state from a checkpoint. It is collective.
func restore(s *state.TrainState, from *checkpoint.Reader, c *collective.Comm) error {
	if err := readState(s, from, c); err != nil {
		return fmt.Errorf("%s: %w", from.Path(), err)
	}
	s.Optim.SetSteps(s.Progress.OptimizerSteps)
	if err := s.Data.Loader.Restore(s.Progress.Loader); err != nil {
		return fmt.Errorf("%s: %w", from.Path(), err)
	}
	return s.Optim.Publish()
}

// readPiece fills a piece from a checkpoint. Moments that the checkpoint has in the other type are
// converted: BF16 is widened, and FP32 rounded to nearest even.
func readPiece(from *checkpoint.Reader, p checkpoint.Piece) error {
	stored, narrow := from.DType(p.Name), p.BF16 != nil
	if narrow == (stored == safetensors.BF16) {
		return from.ReadInto(p)
	}
	other, half := p, tensor.New(tensor.BF16, p.Len())
	if !narrow {
		other.Data, other.BF16 = nil, half.Bytes()
		err := from.ReadInto(other)
		tensor.Widen(p.Data, half.BF16())
		return err
	}
	other.Data, other.BF16 = make([]float32, p.Len()), nil
	err := from.ReadInto(other)
	tensor.Round(half.BF16(), other.Data)
	copy(p.BF16, half.Bytes())
	return err
}

// openSource opens the initial weights that the configuration names, if it names any.
func (j *Job) openSource() (err error) {
	if j.cfg.InitFrom == "" {
		return nil
	}
	if j.source, err = weights.Open(j.cfg.InitFrom); err != nil {
		return fmt.Errorf("init_from: %w", err)
	}
	j.Notes = append(j.Notes, j.source.Notes()...)
	model := j.cfg.Model
	if j.source.Config().IndexHeads == 0 {
		model.IndexHeads = 0 // the run adds indexers
	}
	if has, want := j.source.Config().Count().Total, model.Count().Total; has != want {
		return fmt.Errorf("init_from: %s holds a model of %d parameters, but the configuration describes one of %d: leave the model's settings out", j.source.Path(), has, want)
	}
	return nil
}

// closeStart closes the files of the checkpoint or the weights that the run starts from. Until then
// a checkpoint takes its space even if it is deleted.
func (j *Job) closeStart() (err error) {
	if j.started.Swap(true) {
		return nil
	}
	if j.resume != nil {
		err = j.resume.Close()
	}
	if j.source != nil {
		err = errors.Join(err, j.source.Close())
	}
	return err
}

// initialize sets a rank's state to the initial weights of a new run. It is collective.
func (j *Job) initialize(s *state.TrainState, ex *tensor.Exec) error {
	from := j.source
	if from == nil {
		return s.Optim.Init(j.cfg.Seed)
	}
	return from.Init(ex, s.Optim, s.Routers(), j.cfg.Seed)
}
