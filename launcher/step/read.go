package step

// Reading tensors by their names in Hugging Face's form.

import (
	"fmt"
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

// first returns the tensor of the first rank that has it.
func (f *Folder) first(k key) (e entry, ok bool) {
	for _, r := range f.all() {
		if e, ok = r.tensors[k]; ok {
			break
		}
	}
	return e, ok
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
		all := key{class: class, name: m[1] + "." + projection + "_proj"}
		if _, ok := f.first(all); ok && (projection == m[3] || m[3] != "down") {
			return all, func(v view) (view, error) { return f.expert(v, expert, projection, m[3] == "up") }
		}
	}
	return k, nil
}

// expert returns the part of an expert of [experts, rows, columns]. The first half of gate_up is
// gate. "layout" of step.json may say that a tensor is transposed: "gate_up_proj [E, D, 2I]".
func (f *Folder) expert(v view, expert int, projection string, up bool) (view, error) {
	if len(v.dims) != 3 || expert >= v.dims[0] {
		return v, fmt.Errorf("%s_proj of all experts is %v: expected [experts, rows, columns] with an expert %d", projection, v.dims, expert)
	}
	v = v.slice(0, expert, 1)
	v.dims, v.strides = v.dims[1:], v.strides[1:]
	_, dims, ok := strings.Cut(fmt.Sprint(f.Info.Layout), projection+"_proj")
	dims, _, _ = strings.Cut(dims, "]")
	if inner := strings.LastIndex(dims, "I") > strings.LastIndex(dims, "D"); ok && inner != (projection == "down") {
		slices.Reverse(v.dims)
		slices.Reverse(v.strides)
	}
	if rows := v.dims[0] / 2; projection == "gate_up" {
		v = v.slice(0, map[bool]int{up: rows}[true], rows)
	}
	return v, nil
}

// parameter reads a parameter and checks its dimensions.
func (f *Folder) parameter(class Class, name string) (Value, error) {
	k, expert := f.locate(class, name)
	v, err := f.load(k, expert)
	if want, ok := f.Model.ParamDims(name); ok && err == nil && !slices.Equal(v.Dims, want) {
		err = fmt.Errorf("%s: %s is %v: config.json asks for %v, and placement.json says how ranks share it", class, name, v.Dims, want)
		f.find(Finding{Module: name, Says: err.Error(), Wrong: len(f.Ranks) == 0})
	}
	return v, err
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
	if !ok {
		e, err = f.joinOnce(k, tokens)
	}
	if part != nil && err == nil {
		e.view, err = part(e.view)
	}
	if err == nil {
		v, err = e.value()
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
func (f *Folder) joinOnce(k key, tokens int) (entry, error) {
	f.joining.Lock()
	defer f.joining.Unlock()
	if e, ok := f.joined[k]; ok {
		return e, nil
	}
	v, err := f.join(k, tokens)
	if len(f.joined) > 2 { // gate, up and down
		clear(f.joined)
	}
	e := entry{view: rowMajor(v.Dims), dtype: v.DType, joined: v.Data}
	if err == nil {
		f.joined[k] = e
	}
	return e, err
}

// Repeats lists the micro-batches and calls that the folder has activations of, in order.
func (f *Folder) Repeats() (list []Repeat) {
	ports := map[string]bool{} // small modules, such as activation functions, are called many times
	for _, m := range f.Model.Modules() {
		for _, p := range slices.Concat(m.Inputs, m.Outputs) {
			ports[p.Name] = true
		}
	}
	for _, k := range f.keys(Activations) {
		if ports[k.name] && !slices.Contains(list, k.Repeat) {
			list = append(list, k.Repeat)
		}
	}
	if list == nil {
		for micro := range f.Info.MicroBatches {
			list = append(list, Repeat{MicroBatch: micro})
		}
	}
	return list
}

// keys lists the tensors of a class: repeats in order, and of each the names.
func (f *Folder) keys(class Class) (list []key) {
	for _, r := range f.all() {
		for k := range r.tensors {
			if k.class == class {
				list = append(list, k)
			}
		}
	}
	slices.SortFunc(list, key.compare)
	return slices.Compact(list)
}

// Names lists the tensors of a class.
func (f *Folder) Names(class Class) []string { return f.names(class, false) }

// Unread lists the tensors of a class that were never asked for.
func (f *Folder) Unread(class Class) []string { return f.names(class, true) }

func (f *Folder) names(class Class, unread bool) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.keys(class) {
		if !unread || !f.read[k] {
			names = append(names, k.String())
		}
	}
	return names
}
