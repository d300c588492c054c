package trainer

// Recording the routes of a run's tokens, and replaying those of another run.

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"spmoe/collective"
	"spmoe/launcher/routes"
	"spmoe/moe"
	"spmoe/tensor/profile"
)

// RoutesFile is the name of the file of routes in the folder of a run.
const RoutesFile = "routes.arrow"

// routesHeader describes the routes of a run.
func (j *Job) routesHeader() routes.Header {
	cfg, m := j.cfg, j.cfg.Model
	l := cfg.LayoutOrDefault(j.ranks)
	h := routes.Header{
		Flavor: cfg.Flavor, Precision: cfg.Precision, Experts: m.Experts, TopK: m.TopK, Dim: m.Dim, Seq: cfg.Seq, Batch: cfg.Batch,
		Ranks: l.Batch(), EP: l.EP, Text: j.train.Fingerprint(), Seed: cfg.Seed,
	}
	for i := range m.Layers + m.MTPLayers {
		if !m.IsDense(i) {
			h.Layers = append(h.Layers, i)
		}
	}
	return h
}

// openRoutes opens the file to be replayed, if there is one that fits the run.
func (j *Job) openRoutes() (*routes.Reader, error) {
	if j.cfg.ReplayRoutes == "" {
		return nil, nil
	}
	r, err := routes.Open(j.cfg.ReplayRoutes)
	if err != nil {
		return nil, fmt.Errorf("replay_routes: %w", err)
	}
	if err := r.Header.Fits(j.routesHeader()); err != nil {
		return nil, errors.Join(fmt.Errorf("replay_routes: the routes in %s do not fit: %w", j.cfg.ReplayRoutes, err), r.Close())
	}
	return r, nil
}

// checkRoutes returns an error if the run cannot replay its routes.
func (j *Job) checkRoutes() error {
	r, err := j.openRoutes()
	if err != nil || r == nil {
		return err
	}
	return r.Close()
}

// routeTable has the routes of a step. A nil one records and replays nothing.
type routeTable struct {
	routes.Header
	rank *rank
	path string

	// [layers, tokens, topK]: weight bits and expert number of what this rank's tokens have used, 0
	// for those of other ranks; nil: they are not recorded
	used   []int64
	writer *routes.Writer // of the leading rank

	replay *routes.Reader // nil: none
	step   routes.Step    // that is replayed
}

// newRouteTable returns nil if there is nothing to record or to replay.
func newRouteTable(r *rank) (*routeTable, error) {
	cfg := r.job.cfg
	if !cfg.RecordRoutes && cfg.ReplayRoutes == "" {
		return nil, nil
	}
	t := &routeTable{Header: r.job.routesHeader(), rank: r, path: filepath.Join(cfg.Out, RoutesFile)}
	if cfg.RecordRoutes {
		t.used = make([]int64, len(t.Layers)*t.Tokens()*t.TopK)
	}
	var err error
	t.replay, err = r.job.openRoutes()
	return t, err
}

// begin prepares a step.
func (t *routeTable) begin(step int) (err error) {
	if t == nil {
		return nil
	}
	clear(t.used)
	if t.replay != nil {
		t.step, err = t.replay.At(step)
	}
	return err
}

// pass returns the routes of n sequences, which follow the first of this rank's in the step.
func (t *routeTable) pass(first, n int) *moe.Routes {
	if t == nil {
		return nil
	}
	sequence := first*t.Ranks + t.rank.mesh.World.Rank()*n // see datasets.Loader
	span := func(layer int) (from, to int) {
		at := slices.Index(t.Layers, layer)*t.Tokens() + sequence*t.Seq
		return at * t.TopK, (at + n*t.Seq) * t.TopK
	}
	all := &moe.Routes{}
	if t.used != nil {
		all.Record = func(layer int, experts []int32, weights []float32) {
			from, to := span(layer)
			for i := range t.used[from:to] {
				t.used[from+i] = int64(math.Float32bits(weights[i]))<<16 | int64(experts[i])
			}
		}
	}
	if t.replay != nil {
		all.Replay = func(layer int) (experts []int32, weights []float32) {
			from, to := span(layer)
			if t.rank.job.cfg.ReplayWeights {
				weights = t.step.Weights[from:to]
			}
			return t.step.Experts[from:to], weights
		}
	}
	return all
}

// end records a step. It is collective.
func (t *routeTable) end(step int) error {
	if t == nil || t.used == nil {
		return nil
	}
	defer t.rank.ex.Enter(t.rank.ex.Enter(profile.Collectives))
	if err := collective.AllReduce(t.rank.comm, t.used, collective.Sum); err != nil {
		return fmt.Errorf("gathering routes: %w", err)
	}
	if !t.rank.lead() {
		return nil
	}
	if err := t.openWriter(step); err != nil {
		return err
	}
	s := routes.Step{Step: step}
	for _, u := range t.used {
		s.Experts, s.Weights = append(s.Experts, int32(u&(routes.MaxExperts-1))), append(s.Weights, math.Float32frombits(uint32(u>>16)))
	}
	return t.writer.Append(s)
}

// openWriter opens the file for a step. A run that goes back to an earlier step drops the later
// ones.
func (t *routeTable) openWriter(step int) (err error) {
	if t.writer != nil && t.writer.Last() == step-1 {
		return nil
	}
	if err := t.closeWriter(); err != nil {
		return err
	}
	if err := t.rank.job.Folder.Check(); err != nil {
		return err
	}
	t.writer, err = routes.Continue(t.path, t.Header, step-1)
	return err
}

func (t *routeTable) closeWriter() error {
	if t == nil || t.writer == nil {
		return nil
	}
	w := t.writer
	t.writer = nil
	return w.Close()
}

// close closes the files.
func (t *routeTable) close() error {
	err := t.closeWriter()
	if t != nil && t.replay != nil {
		err = errors.Join(err, t.replay.Close())
	}
	return err
}
