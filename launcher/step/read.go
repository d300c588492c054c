package step

// Reading tensors by their names in Hugging Face's form.

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Weight returns a parameter or a buffer at the start of the step, by its name in Hugging Face's
// form. Experts are named one by one, also if the folder has them fused.
func (f *Folder) Weight(name string) (Value, error) {
	if _, ok := f.DType(Weights, name); !ok && name == "lm_head.weight" && f.Model.Tied {
		name = "model.embed_tokens.weight"
	}
	return f.parameter(Weights, name)
}

// Gradient returns the gradient of a parameter.
func (f *Folder) Gradient(name string) (Value, error) { return f.parameter(Gradients, name) }

// After returns a parameter after the step.
func (f *Folder) After(name string) (Value, error) { return f.parameter(After, name) }

// Activation returns a tensor by the name of a port and the suffix of a repeat. Dimensions of batch
// and sequence are one: [tokens, ...].
func (f *Folder) Activation(name string) (Value, error) {
	return f.load(f.key(Activations, name), nil)
}

// DType returns the type of a tensor without reading it, and whether the folder has the tensor.
func (f *Folder) DType(class Class, name string) (string, bool) {
	k, _ := f.locate(class, name)
	e, ok := f.first(k)
	return e.dtype, ok
}

func (f *Folder) key(class Class, name string) key {
	bare, repeat := canonical(name, f.Model.KVRank > 0)
	return key{class, bare, repeat}
}

// first returns the tensor of the first rank that has it.
func (f *Folder) first(k key) (entry, bool) {
	for _, r := range f.all() {
		if e, ok := r.tensors[k]; ok {
			return e, true
		}
	}
	return entry{}, false
}

var oneExpert = regexp.MustCompile(`^(.*\.experts)\.(\d{1,6})\.(gate|up|down)_proj\.weight$`)

// locate returns the key of a tensor. If it is the parameter of one expert and the folder has those
// of all in one, it also returns which part is this expert's.
func (f *Folder) locate(class Class, name string) (key, func(view) (view, error)) {
	k := f.key(class, name)
	m := oneExpert.FindStringSubmatch(k.name)
	if _, ok := f.first(k); ok || m == nil || class == Activations {
		return k, nil
	}
	expert, _ := strconv.Atoi(m[2])
	for _, projection := range []string{m[3], "gate_up"} {
		for _, suffix := range []string{"_proj", "_proj.weight"} {
			all := key{class: class, name: m[1] + "." + projection + suffix}
			if _, ok := f.first(all); ok && (projection == m[3] || m[3] != "down") {
				half := strings.Index("gate up", m[3]) / len("gate ")
				return all, func(v view) (view, error) { return f.expert(v, expert, projection, half) }
			}
		}
	}
	return k, nil
}

// expert returns the part of an expert of [experts, rows, columns]. Half 0 of gate_up is gate.
// "layout" of step.json may say that a tensor is transposed ("gate_up_proj [E, D, 2I]"), or that
// rows of gate and up are interleaved.
func (f *Folder) expert(v view, expert int, projection string, half int) (view, error) {
	if len(v.dims) != 3 || expert >= v.dims[0] {
		return v, fmt.Errorf("%s_proj of all experts is %v: expected [experts, rows, columns] with an expert %d", projection, v.dims, expert)
	}
	v = v.slice(0, expert, 1, 1)
	v.dims, v.strides = v.dims[1:], v.strides[1:]
	layout := fmt.Sprint(f.Info.Layout)
	_, dims, ok := strings.Cut(layout, projection+"_proj")
	dims, _, _ = strings.Cut(dims, "]")
	if inner := strings.LastIndex(dims, "I") > strings.LastIndex(dims, "D"); ok && inner != (projection == "down") {
		v = v.swap(0, 1)
	}
	switch rows := v.dims[0] / 2; {
	case projection != "gate_up":
	case strings.Contains(layout, "interleaved"):
		v = v.slice(0, half, rows, 2)
	default:
		v = v.slice(0, half*rows, rows, 1)
	}
	return v, nil
}

// parameter reads a parameter and checks its dimensions.
func (f *Folder) parameter(class Class, name string) (Value, error) {
	k, expert := f.locate(class, name)
	v, err := f.load(k, expert)
	if err == nil {
		err = f.scale(k, &v)
	}
	if want, ok := f.Model.ParamDims(name); ok && err == nil && !slices.Equal(v.Dims, want) {
		err = fmt.Errorf("%s: %s is %v: config.json asks for %v, and placement.json says how ranks share it", class, name, v.Dims, want)
		f.find(Finding{Module: name, Says: err.Error(), Wrong: len(f.ranks) == 0})
	}
	return v, err
}

// scale multiplies an FP8 weight by the scales of its blocks, NAME_scale_inv.
func (f *Folder) scale(k key, v *Value) error {
	const block = 128
	by := key{class: k.class, name: k.name + "_scale_inv"}
	if _, ok := f.first(by); !ok || len(v.Dims) != 2 {
		return nil
	}
	scales, err := f.load(by, nil)
	if err != nil {
		return err
	}
	if want := []int{(v.Dims[0] + block - 1) / block, (v.Dims[1] + block - 1) / block}; !slices.Equal(scales.Dims, want) {
		return fmt.Errorf("%s is %v: expected %v, a scale per block of %dx%d", by, scales.Dims, want, block, block)
	}
	for i := range v.Data {
		row, column := i/v.Dims[1], i%v.Dims[1]
		v.Data[i] *= scales.Data[row/block*scales.Dims[1]+column/block]
	}
	return nil
}

// load reads a tensor, or a part of it, and joins it if ranks share it. It notes values that are
// not finite.
func (f *Folder) load(k key, part func(view) (view, error)) (v Value, err error) {
	if _, ok := f.first(k); !ok {
		return Value{}, fmt.Errorf("%s: %s is %w", k.class, k, ErrAbsent)
	}
	tokens := 0
	if (k.class == Activations || k.class == batchClass) && k.MicroBatch < len(f.tokens) {
		tokens = f.tokens[k.MicroBatch]
	}
	e, ok := f.whole.tensors[k]
	of := e.view
	if !ok {
		v, err = f.joinOnce(k, tokens)
		of = rowMajor(v.Dims)
	}
	if part != nil && err == nil {
		of, err = part(of)
	}
	if e.view = of; ok && err == nil {
		v, err = e.value()
	} else if err == nil {
		v = v.pick(of) // a copy: others may read it too
	}
	if err != nil {
		return Value{}, fmt.Errorf("%s: %w", k, err)
	}
	v.flatten(tokens)
	f.mu.Lock()
	f.read[k] = true
	f.mu.Unlock()
	if i := slices.IndexFunc(v.Data, func(x float64) bool { return math.IsNaN(x - x) }); i >= 0 {
		f.find(Finding{Module: k.name, Wrong: true, Says: fmt.Sprintf("%s has %g at element %d: every number should be finite", k, v.Data[i], i)})
	}
	return v, nil
}

// joinOnce is join. It keeps what was joined last, because fused experts are asked for one by one.
func (f *Folder) joinOnce(k key, tokens int) (v Value, err error) {
	f.joining.Lock()
	defer f.joining.Unlock()
	v, ok := f.joined[k]
	if !ok {
		v, err = f.join(k, tokens)
	}
	if len(f.joined) > 2 { // gate, up and down
		clear(f.joined)
	}
	if err == nil {
		f.joined[k] = v
	}
	return v, err
}

// flatten makes one dimension of those of batch and sequence. It reports whether there are that
// many tokens.
func (v *Value) flatten(tokens int) bool {
	for i := range v.Dims {
		if product(v.Dims[:i+1]) == tokens && tokens > 0 {
			v.Dims = append([]int{tokens}, v.Dims[i+1:]...)
			return true
		}
	}
	return false
}

// Repeats lists the micro-batches and calls that the folder has activations of, in order.
func (f *Folder) Repeats() []Repeat {
	ports := map[string]bool{} // small modules, such as activation functions, are called many times
	for _, m := range f.Model.Modules() {
		for _, p := range slices.Concat(m.Inputs, m.Outputs) {
			ports[p.Name] = true
		}
	}
	var list []Repeat
	for _, k := range f.keys(Activations) {
		if ports[k.name] && !slices.Contains(list, k.Repeat) {
			list = append(list, k.Repeat)
		}
	}
	if len(list) == 0 {
		for micro := range f.Info.MicroBatches {
			list = append(list, Repeat{MicroBatch: micro})
		}
	}
	return list
}

// keys lists the tensors of a class: repeats in order, and of each the layers.
func (f *Folder) keys(class Class) []key {
	seen := map[key]bool{}
	for _, r := range f.all() {
		for k := range r.tensors {
			if k.class == class {
				seen[k] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), key.compare)
}

// Names lists the tensors of a class.
func (f *Folder) Names(class Class) (names []string) {
	for _, k := range f.keys(class) {
		names = append(names, k.String())
	}
	return names
}

// Unread lists the tensors of a class that were never asked for.
func (f *Folder) Unread(class Class) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.keys(class) {
		if !f.read[k] {
			names = append(names, k.String())
		}
	}
	return names
}
