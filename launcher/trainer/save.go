package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/moe/optim"
)

// A checkpoint holds FP32 master weights, both moments, the routers' selection biases, the
// loader's position and the configuration: all that the next step depends on.

// masterPrefix begins the names of the master weights.
const masterPrefix = "master/"

// pieces lists a piece's tensors under their checkpoint names.
func pieces(p optim.Piece) []checkpoint.Piece {
	of := func(kind string, data []float32) checkpoint.Piece {
		return checkpoint.Piece{Name: kind + p.Param.Name, Shape: p.Param.Dims, Offset: int64(p.Offset), Data: data}
	}
	return []checkpoint.Piece{of(masterPrefix, p.Master), of("exp_avg/", p.ExpAvg), of("exp_avg_sq/", p.ExpAvgSq)}
}

// biases lists the selection biases, which every rank holds.
func (r *rank) biases() []checkpoint.Piece {
	var all []checkpoint.Piece
	for _, route := range r.routings {
		all = append(all, checkpoint.Piece{Name: "router_bias/" + route.Name, Shape: route.Bias.Dims(), Data: route.Bias.F32()})
	}
	return all
}

// save writes a checkpoint of the state between two steps. It is collective.
func (r *rank) save() error {
	begin := time.Now()
	if err := errors.Join(r.recording.flush(), r.saveShards()); err != nil {
		return fmt.Errorf("saving the checkpoint of step %d: %w", r.progress.Step, err)
	}
	if r.lead() {
		path := filepath.Join(r.cfg.Out, fmt.Sprintf("step-%08d", r.progress.Step))
		r.job.report.Saved(Saved{r.progress.Step, path, time.Since(begin)})
	}
	return nil
}

func (r *rank) saveShards() (err error) {
	step, ranks := int64(r.progress.Step), r.comm.Size()
	var w *checkpoint.Writer
	if r.lead() {
		if w, err = checkpoint.NewWriter(r.cfg.Out, step, ranks); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				w.Abort()
			}
		}()
	}
	if err := r.comm.Barrier(); err != nil {
		return err
	}
	if w == nil {
		if w, err = checkpoint.Join(r.cfg.Out, step, ranks); err != nil {
			return err
		}
	}
	var mine []checkpoint.Piece
	for p := range r.optim.Pieces {
		mine = append(mine, pieces(p)...)
	}
	if r.lead() {
		mine = append(mine, r.biases()...)
	}
	if err := w.WriteShard(r.comm.Rank(), mine); err != nil {
		return err
	}
	if err := r.comm.Barrier(); err != nil {
		return err
	}
	if r.lead() {
		if err := r.commit(w); err != nil {
			return err
		}
	}
	return r.comm.Barrier()
}

func (r *rank) commit(w *checkpoint.Writer) error {
	r.progress.OptimizerSteps = r.optim.Steps()
	r.progress.Loader = r.loader.State()
	config, err := ConfigTOML(r.cfg)
	if err != nil {
		return err
	}
	if err := w.Commit(r.progress, config); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.cfg.Out, "config.toml"), config, 0o666); err != nil {
		return err
	}
	return checkpoint.Prune(r.cfg.Out, r.cfg.Keep)
}

// restore sets this rank to the state of the checkpoint that the job resumes.
func (r *rank) restore() error {
	from := r.job.resume
	var want []checkpoint.Piece
	for p := range r.optim.Pieces {
		want = append(want, pieces(p)...)
	}
	for _, p := range append(want, r.biases()...) {
		if err := from.ReadInto(p); err != nil {
			return fmt.Errorf("%s: %w", from.Path(), err)
		}
	}
	r.optim.SetSteps(r.progress.OptimizerSteps)
	if err := r.loader.Restore(r.progress.Loader); err != nil {
		return fmt.Errorf("%s: %w", from.Path(), err)
	}
	return r.optim.Publish()
}
