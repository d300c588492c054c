package pipe

// Optimizer steps and evaluations: a pipeline ends with the master weights, moments and selection
// biases of one rank, and its losses are those of one rank.

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

const (
	steps     = 4
	evaluated = 2 // sequences
)

// trained is the state after training, by parameter and vector, and what the steps said.
type trained struct {
	sync.Mutex
	state map[string][]float32
	said  []string
}

// sum returns the SHA-256 of the state.
func (r *trained) sum() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(r.state)) {
		h.Write([]byte(name))
		b := make([]byte, 0, 4*len(r.state[name]))
		for _, x := range r.state[name] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// add adds the state of a rank.
func (r *trained) add(opt *optim.Optimizer, routings []moe.Routing) {
	r.Lock()
	defer r.Unlock()
	for p := range opt.Pieces {
		for _, v := range p.State {
			name := v.Name + "/" + p.Param.Name
			if r.state[name] == nil {
				r.state[name] = make([]float32, p.Param.Len())
			}
			copy(r.state[name][p.Offset:], v.Data.F32())
		}
	}
	for _, route := range routings {
		r.state[route.Name] = slices.Clone(route.Bias.F32())
	}
}

// trainer is what a rank needs for steps.
type trainer struct {
	ranks    *collective.Comm // all
	peers    *collective.Comm // with the same routers
	groups   []*moe.Group
	routings []moe.Routing
	pass     func(ex *tensor.Exec, step int) (moe.Loss, error) // over the parts of a batch
	eval     func(ex *tensor.Exec) (moe.Loss, error)
}

// train makes steps. The first rank notes losses and norm of each, and the loss of the new weights.
func (r *trained) train(x trainer) error {
	ex := tensor.NewExec()
	opt := optim.New(ex, x.groups, x.ranks, optim.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1})
	opt.ClipNorm = 0.5
	if err := opt.Init(3); err != nil {
		return err
	}
	for i := range steps {
		loss, err := x.pass(ex, i)
		if err != nil {
			return err
		}
		norm, err := opt.Reduce()
		if err != nil {
			return err
		}
		if err := opt.Apply(1e-2, norm); err != nil {
			return err
		}
		later, err := x.eval(ex)
		if err != nil {
			return err
		}
		sums := []float64{loss.Sum, loss.Ahead, loss.Balance, float64(loss.Tokens), later.Sum, later.Ahead, later.Balance}
		if err := collective.AllReduce(x.ranks, sums, collective.Sum); err != nil {
			return err
		}
		if x.ranks.Rank() == 0 {
			r.said = append(r.said, fmt.Sprintf("step %d: losses %x, norm %x", i, sums, norm))
		}
		for _, route := range x.routings {
			load := slices.Clone(route.Load)
			if err := collective.AllReduce(x.peers, load, collective.Sum); err != nil {
				return err
			}
			route.Balance(load)
		}
	}
	r.add(opt, x.routings)
	return nil
}

// trainAlone trains on one rank without a pipeline.
func (s setup) trainAlone(t *testing.T, all text, parts int) *trained {
	t.Helper()
	r := &trained{state: map[string][]float32{}}
	err := collective.NewWorld(1).Run(func(c *collective.Comm) error {
		m, err := moe.New(s.cfg, s.precision, seq, c, nil)
		if err != nil {
			return err
		}
		return r.train(trainer{c, c, m.Groups, m.Routings(), func(ex *tensor.Exec, step int) (sum moe.Loss, err error) {
			for i, b := range all.parts(step, parts, 0, 1) {
				b.More = i+1 < parts
				loss, err := m.Train(ex, b)
				if err != nil {
					return sum, err
				}
				sum.Add(loss)
			}
			return sum, nil
		}, func(ex *tensor.Exec) (moe.Loss, error) { return m.Eval(ex, all.batch(0, evaluated)) }})
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// train trains the pipeline.
func (s setup) train(t *testing.T, all text) *trained {
	t.Helper()
	plan, err := NewPlan(s.schedule, s.stages())
	if err != nil {
		t.Fatal(err)
	}
	r := &trained{state: map[string][]float32{}}
	err = collective.NewWorld(len(s.schedule.Ranks) * s.dp).Run(func(c *collective.Comm) error {
		rank, err := s.build(c, plan)
		if err != nil {
			return err
		}
		return r.train(trainer{c, rank.Mesh.World, rank.Groups(), rank.Routings(), func(ex *tensor.Exec, step int) (moe.Loss, error) {
			return rank.Run(ex, all.parts(step, s.schedule.Microbatches, rank.Mesh.World.Rank(), s.dp))
		}, func(ex *tensor.Exec) (moe.Loss, error) {
			at := rank.Mesh.World.Rank()
			return rank.Eval(ex, all.batch(evaluated*at/s.dp, evaluated*(at+1)/s.dp))
		}})
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// parts returns a rank's sequences of a step, part by part. Every step has the whole text, which
// begins elsewhere.
func (t text) parts(step, parts, rank, ranks int) (all []moe.Batch) {
	n := len(t.inputs) / seq
	each := n / parts
	for i := range parts {
		lo := (i + step) % parts * each
		all = append(all, t.batch(lo+each*rank/ranks, lo+each*(rank+1)/ranks))
	}
	return all
}

// Every schedule and every layout of pipelines end in the state of one rank. TestBitsOfOneRank has
// the gradients of every schedule in every layout, so here each schedule has one layout per
// precision.
func TestTrainingInLayouts(t *testing.T) {
	const parts = 8
	layouts := [][3]int{{2, 1, 1}, {4, 1, 1}, {2, 2, 2}, {4, 2, 1}} // pp, dp, ep
	for precision, run := range map[string]struct {
		schedules []string
		first     int // layout
	}{"bf16": {pipeline.Names(), 0}, "mxfp8": {pipeline.Names(), 2}, "nvfp4": {[]string{"ZBVZeroBubble"}, 3}} {
		s := setup{cfg: config(1)}
		s.cfg.BiasSpeed = 0.01
		var err error
		if s.precision, err = moe.PrecisionByName(precision); err != nil {
			t.Fatal(err)
		}
		all := newText(2*parts, s.cfg.Vocab)
		want := s.trainAlone(t, all, parts)
		for i, name := range run.schedules {
			c := layouts[(i+run.first)%len(layouts)]
			if s.schedule, err = pipeline.New(name, c[0], 0, parts); err != nil {
				t.Fatal(err)
			}
			s.dp, s.ep = c[1], c[2]
			what := fmt.Sprintf("%s, %s, dp %d, ep %d", precision, s.schedule.Title(), s.dp, s.ep)
			got := s.train(t, all)
			if !slices.Equal(got.said, want.said) {
				t.Errorf("%s:\n%q\nwant\n%q", what, got.said, want.said)
			}
			if got.sum() != want.sum() {
				t.Errorf("%s: the state is %s, want %s", what, got.sum(), want.sum())
			}
		}
	}
}
