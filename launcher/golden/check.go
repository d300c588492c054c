package golden

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"spmoe/collective"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Check runs one forward and backward pass on n ranks in FP32 and compares every activation,
// the logits, the loss and every gradient with the reference: one Line each.
func (f *Folder) Check(n int) ([]Line, error) {
	c, err := f.newCheck()
	if err != nil {
		return nil, err
	}
	if err := f.run(n, c.seq, optim.AdamW{}, c.rank); err != nil {
		return nil, err
	}
	lines, err := c.activations()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(c.gradients, func(a, b Line) int { return cmp.Compare(a.Name, b.Name) })
	return append(lines, c.gradients...), nil
}

// check is one comparison under way. Ranks write disjoint parts of the captured tensors.
type check struct {
	folder          *Folder
	inputs, targets []int32
	batch, seq      int
	captured        map[string]capture
	loss            float64

	mu        sync.Mutex
	gradients []Line
}

// capture is a reference tensor and what the model computed in its place.
type capture struct {
	info   safetensors.Info
	floats []float32
	ints   []int32
	seen   []bool // by rank
}

func (f *Folder) newCheck() (*check, error) {
	c := &check{folder: f, captured: map[string]capture{}}
	var shape, targetShape []int
	var err error
	if c.inputs, shape, err = ids(f.reference, "input_ids"); err != nil {
		return nil, err
	}
	if c.targets, targetShape, err = ids(f.reference, "target_ids"); err != nil {
		return nil, err
	}
	if len(shape) != 2 || !slices.Equal(shape, targetShape) || shape[0]*shape[1] == 0 {
		return nil, fmt.Errorf("input_ids has shape %v and target_ids %v: both must be [batch, seq]", shape, targetShape)
	}
	if err := errors.Join(f.vocabulary("input_ids", c.inputs), f.vocabulary("target_ids", c.targets)); err != nil {
		return nil, err
	}
	c.batch, c.seq = shape[0], shape[1]
	for _, info := range f.reference.Tensors() {
		n := 1
		for _, d := range info.Shape {
			n *= d
		}
		if n%len(c.inputs) != 0 {
			continue
		}
		if info.DType == safetensors.I32 || info.DType == safetensors.I64 {
			c.captured[info.Name] = capture{info: info, ints: make([]int32, n), seen: make([]bool, 1)}
		} else {
			c.captured[info.Name] = capture{info: info, floats: make([]float32, n), seen: make([]bool, 1)}
		}
	}
	return c, nil
}

// rank runs the passes of one rank.
func (c *check) rank(r *rank) error {
	lo, hi := r.share(c.batch)
	lo, hi = lo*c.seq, hi*c.seq
	store := func(name string, t tensor.Tensor) { c.store(r, name, lo, t) }
	r.model.Observe(store)
	loss, err := r.model.Train(r.ex, moe.Batch{Inputs: c.inputs[lo:hi], Targets: c.targets[lo:hi], Seq: c.seq, GlobalSequences: c.batch})
	if err != nil {
		return err
	}
	r.model.Observe(nil)
	logits, err := r.model.Logits(r.ex, c.inputs[lo:hi], c.seq)
	if err != nil {
		return err
	}
	store("logits", logits)
	total, err := r.sum(loss.Sum)
	if err != nil {
		return err
	}
	if r.comm.Rank() == 0 {
		c.loss = total / float64(len(c.inputs))
	}
	return c.compareGradients(r)
}

// store copies the rows of this rank's tokens, which begin at token lo, to the captured tensor.
func (c *check) store(r *rank, name string, lo int, t tensor.Tensor) {
	to, ok := c.captured[name]
	if !ok {
		return
	}
	if r.comm.Rank() == 0 {
		to.seen[0] = true
	}
	switch t.DType() {
	case tensor.INT32:
		copy(to.ints[min(lo*t.Dim(1), len(to.ints)):], t.I32())
	case tensor.FP32:
		copy(to.floats[min(lo*t.Dim(1), len(to.floats)):], t.F32())
	}
}

// activations compares what was captured, in the order of the layers.
func (c *check) activations() ([]Line, error) {
	var lines []Line
	for _, info := range c.folder.reference.Tensors() {
		name := info.Name
		if name == "input_ids" || name == "target_ids" {
			continue
		}
		line, err := c.compare(name)
		if err != nil {
			return nil, fmt.Errorf("activations.safetensors: %w", err)
		}
		lines = append(lines, line)
	}
	slices.SortStableFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(depth(a.Name), depth(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return lines, nil
}

// depth orders "layer2_out" before "layer10_out" and both before the logits and the loss.
func depth(name string) int {
	var layer int
	if _, err := fmt.Sscanf(name, "layer%d_", &layer); err != nil {
		return 1 << 30
	}
	return layer
}

func (c *check) compare(name string) (Line, error) {
	if name == "loss" {
		want, err := c.folder.reference.Float32s(name)
		if err != nil || len(want) != 1 {
			return Line{}, errors.Join(fmt.Errorf("loss: one number is expected"), err)
		}
		return number(name, c.loss, float64(want[0]), lossBound), nil
	}
	got, ok := c.captured[name]
	if !ok || !got.seen[0] {
		return Line{Name: name, Note: "not compared: the model has no such activation"}, nil
	}
	if got.ints != nil {
		want, err := c.folder.reference.Int32s(name)
		return choices(name, got.ints, want, c.folder.Config.TopK), err
	}
	want, err := c.folder.reference.Float32s(name)
	if err != nil {
		return Line{}, err
	}
	floats := got.floats
	if index := strings.TrimSuffix(name, "weight") + "index"; strings.HasSuffix(name, "topk_weight") && c.captured[index].ints != nil {
		to, err := c.folder.reference.Int32s(index)
		if err != nil {
			return Line{}, err
		}
		floats = reorder(floats, c.captured[index].ints, to, c.folder.Config.TopK)
	}
	return elements(name, floats, want), nil
}

// compareGradients compares the parameters that this rank answers for: its experts', and on
// rank 0 all replicated ones.
func (c *check) compareGradients(r *rank) error {
	for _, g := range r.model.Groups {
		if !g.Local {
			if err := collective.AllReduce(r.comm, g.Grad.F32(), collective.Sum); err != nil {
				return err
			}
		}
		if c.folder.gradients == nil || !g.Local && r.comm.Rank() != 0 {
			continue
		}
		for _, p := range g.Params {
			if err := c.compareGradient(p); err != nil {
				return fmt.Errorf("gradients.safetensors: %w", err)
			}
		}
	}
	return nil
}

func (c *check) compareGradient(p *moe.Param) error {
	name := "gradient " + p.Name
	line := Line{Name: name, Note: "not compared: the reference lacks it"}
	if _, ok := c.folder.gradients.Info(p.Name); ok {
		want, err := parameter(c.folder.gradients, p.Name, p.Dims)
		if err != nil {
			return err
		}
		line = relativeL2(name, p.Grad.F32(), want)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gradients = append(c.gradients, line)
	return nil
}
