package trainer

// The weights that a new run starts from: random ones, or those of another model. A run that resumes has no use for them.

import (
	"fmt"
	"hash/fnv"

	"spmoe/collective"
	"spmoe/launcher/weights"
)

// openSource opens the weights that the configuration names, if it does.
func (j *Job) openSource() (err error) {
	if j.cfg.InitFrom == "" {
		return nil
	}
	if j.source, err = weights.Open(j.cfg.InitFrom); err != nil {
		return fmt.Errorf("init_from: %w", err)
	}
	if has, want := j.source.Config().Count().Total, j.cfg.Model.Count().Total; has != want {
		return fmt.Errorf("init_from: %s holds a model of %d parameters, the configuration makes one of %d: leave the model's settings out", j.source.Path(), has, want)
	}
	return nil
}

// initial sets this rank to the weights that the first step starts from. It is collective.
func (r *rank) initial() error {
	from := r.job.source
	if from == nil {
		return r.optim.Init(r.cfg.Seed)
	}
	// Ranks that are processes open it each for itself, and a run that is not over may have a newer checkpoint for the next.
	h := fnv.New32a()
	h.Write([]byte(from.Path()))
	paths := [2]int64{int64(h.Sum32()), -int64(h.Sum32())}
	if err := collective.AllReduce(r.comm, paths[:], collective.Min); err != nil {
		return err
	}
	if paths[0] != -paths[1] {
		return fmt.Errorf("init_from: ranks have opened different checkpoints of %s, this one %s: give one of its checkpoints", r.cfg.InitFrom, from.Path())
	}
	return from.Init(r.ex, r.optim, r.model)
}
