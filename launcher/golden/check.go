package golden

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Check runs one forward and backward pass on n ranks in FP32. It compares every activation, the
// logits, the loss and every gradient with the reference, and returns one Line for each.
func (f *Folder) Check(n int) ([]Line, error) {
	c, err := f.newCheck()
	if err != nil {
		return nil, err
	}
	if err := f.run(n, c.seq, optim.AdamW{}, 0, c.rank); err != nil {
		return nil, err
	}
	lines, err := c.activations()
	if err != nil {
		return nil, err
	}
	return append(lines, c.allGradients()...), nil
}

// check is one comparison under way. Ranks write disjoint parts of the captured tensors.
type check struct {
	folder          *Folder
	inputs, targets []int32
	batch, seq      int
	captured        map[string]*capture
	names           map[string]bool // all that the model has, with N for a layer; set by rank 0
	loss            float64

	mu        sync.Mutex
	gradients []Line
}

// capture is a reference tensor and the model's result for it: [tokens, width] of one type.
type capture struct {
	info   safetensors.Info
	floats []float32
	ints   []int32
	width  int  // elements per token
	seen   bool // the model has it; set by rank 0
}

func (f *Folder) newCheck() (*check, error) {
	c := &check{folder: f, captured: map[string]*capture{}, names: map[string]bool{"loss": true}}
	var shape, targetShape []int
	var err error
	if c.inputs, shape, err = ids(f.reference, "input_ids"); err != nil {
		return nil, err
	}
	if c.targets, targetShape, err = ids(f.reference, "target_ids"); err != nil {
		return nil, err
	}
	if len(shape) != 2 || !slices.Equal(shape, targetShape) || len(c.inputs) == 0 {
		return nil, fmt.Errorf("input_ids has shape %v and target_ids %v: both must be [batch, seq], and not empty", shape, targetShape)
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
		// If its length is not a multiple of the tokens, or exceeds every activation, its width
		// is 0, which no activation has.
		to := &capture{info: info}
		if n%len(c.inputs) == 0 && n/len(c.inputs) <= f.widest() {
			to.width = n / len(c.inputs)
		} else {
			n = 0
		}
		if info.DType == safetensors.I32 || info.DType == safetensors.I64 {
			to.ints = make([]int32, n)
		} else {
			to.floats = make([]float32, n)
		}
		c.captured[observed(info.Name)] = to
	}
	return c, nil
}

// layerNumber is how the name of a layer's activation begins.
var layerNumber = regexp.MustCompile(`^layer[0-9]+_`)

// routerOutputs are what the library's router modules return, in their order.
var routerOutputs = []string{"router_logits", "topk_weight", "topk_index"}

// observed returns the model's name for an activation. References call the results of a router by
// number (layer1_gate_0).
func observed(name string) string {
	for i, output := range routerOutputs {
		if layer, ok := strings.CutSuffix(name, fmt.Sprintf("gate_%d", i)); ok {
			return layer + output
		}
	}
	return name
}

// widest bounds the width of an activation.
func (f *Folder) widest() int {
	return max(f.Config.Vocab, f.Config.Dim, f.Config.TopK, f.Config.Experts)
}

// rank runs the passes of one rank.
func (c *check) rank(r *rank) error {
	lo, hi := r.share(c.batch)
	lo, hi = lo*c.seq, hi*c.seq
	var wrong error
	store := func(name string, t tensor.Tensor) { wrong = errors.Join(wrong, c.store(r, name, lo, t)) }
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
	if store("logits", logits); wrong != nil {
		return wrong
	}
	total, err := r.sum(loss.Sum)
	if err != nil {
		return err
	}
	if r.comm.Rank() == 0 {
		c.loss = total / float64(len(c.inputs))
	}
	return c.compareGradients(r)
}

// store copies the rows of this rank's tokens, which begin at token lo, to the captured tensor. A
// reference of another width or type than the model's activation is an error.
func (c *check) store(r *rank, name string, lo int, t tensor.Tensor) error {
	if r.comm.Rank() == 0 {
		c.names[layerNumber.ReplaceAllString(name, "layerN_")] = true
	}
	to, ok := c.captured[name]
	if !ok {
		return nil
	}
	if t.Dim(1) != to.width || (t.DType() == tensor.INT32) != (to.ints != nil) {
		return fmt.Errorf("activations.safetensors: %s is %s of shape %v: the model gives %s of %d for each of %d tokens",
			name, to.info.DType, to.info.Shape, t.DType(), t.Dim(1), len(c.inputs))
	}
	if r.comm.Rank() == 0 {
		to.seen = true
	}
	if t.DType() == tensor.INT32 {
		copy(to.ints[lo*to.width:], t.I32())
	} else {
		copy(to.floats[lo*to.width:], t.F32())
	}
	return nil
}

// activations compares the captured tensors, in the order of the layers.
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

// depth orders "layer2_out" before "layer10_out", and both before the logits and the loss.
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
	got := c.captured[observed(name)]
	if !got.seen {
		names := slices.Sorted(maps.Keys(c.names))
		return Line{Name: name, Unknown: true, Note: "the model has no such activation, it has " + strings.Join(names, ", ")}, nil
	}
	if got.ints != nil {
		want, err := c.folder.reference.Int32s(name)
		return countChoices(name, got.ints, want, c.folder.Config.TopK), err
	}
	want, err := c.folder.reference.Float32s(name)
	if err != nil {
		return Line{}, err
	}
	floats := got.floats
	layer, weights := strings.CutSuffix(observed(name), "topk_weight")
	if chosen := c.captured[layer+"topk_index"]; weights && chosen != nil && chosen.seen {
		to, err := c.folder.reference.Int32s(chosen.info.Name)
		if err != nil {
			return Line{}, err
		}
		floats = reorder(floats, chosen.ints, to, c.folder.Config.TopK)
	}
	return elements(name, floats, want), nil
}
