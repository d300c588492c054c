package gpusums

// The products of a step folder: which there are, and which of them can be judged.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// A Report has the products of a step.
type Report struct {
	Device  string         `json:"device"`
	Judged  []Judged       `json:"products"`    // in the order of the forward pass
	Skipped map[string]int `json:"not_checked"` // products by reason; nil: the GPU's sums are not known
}

// Judged is a product of a linear layer, or of one expert.
type Judged struct {
	Module string `json:"module"`
	Pass   string `json:"pass"`   // forward, dgrad or wgrad
	Tensor string `json:"tensor"` // the result: an activation, or a parameter's gradient
	Shape  [3]int `json:"shape"`  // M, N, K
	Result
}

// A layer is a linear layer with its names in the folder.
type layer struct {
	path             string
	weights          []string // one below the other
	output, gradient string   // of the output
	fp32             bool     // the layer casts its operands to FP32
}

func linear(weight string) layer {
	path := strings.TrimSuffix(weight, ".weight")
	return layer{path, []string{weight}, path + ".output", path + ".grad_output", false}
}

// Facts are what is known of a step.
type Facts struct {
	Find      func(name string, r step.Repeat) string // the folder's name of an activation
	Quantized func(path string) bool                  // a linear layer's operands have 8 bits
	Wrong     []string                                // gradients that are known to be wrong
	All       bool                                    // compare each element
}

// check is a judgment of products under way.
type check struct {
	Facts
	folder  *step.Folder
	repeats []step.Repeat
	readers map[string]int // how many layers read a weight
	report  *Report
}

// Check judges the products of a folder.
func Check(f *step.Folder, modules []*reference.Module, facts Facts) *Report {
	c := &check{facts, f, f.Repeats(), map[string]int{}, &Report{Device: f.Info.Device}}
	if !strings.Contains(f.Info.Device, "H100") && !strings.Contains(f.Info.Device, "H200") { // which has the H100's chip
		return c.report
	}
	c.report.Skipped = map[string]int{}
	for _, m := range modules {
		if m.Kind == reference.Linear || m.Kind == reference.Embedding {
			c.readers[m.Params[0]]++
		}
	}
	for _, m := range modules {
		switch m.Kind {
		case reference.Linear:
			c.layer(layer{m.Path, m.Params[:1], m.Path + ".output", m.Path + ".grad_output", false})
		case reference.Router:
			logits, _ := f.DType(step.Activations, c.Find(m.Path+".logits", c.repeats[0]), c.repeats[0])
			c.layer(layer{m.Path, m.Params[:1], m.Path + ".logits", m.Path + ".logits.grad", f.Model.RouterFP32 && logits != "BF16"})
		case reference.Experts:
			c.experts(m)
		}
	}
	return c.report
}

// experts judges the products of each expert whose rows the folder has, under the names of a linear
// layer: PATH.3.down_proj.input. The gate and up projections may be one.
func (c *check) experts(m *reference.Module) {
	for at := 0; at < len(m.Params); at += 3 { // gate, up, down
		layers := []layer{linear(m.Params[at]), linear(m.Params[at+1]), linear(m.Params[at+2])}
		if fused := strings.Replace(layers[0].path, "gate_proj", "gate_up_proj", 1); c.has(fused) {
			layers[1] = layer{fused, m.Params[at : at+2], fused + ".output", fused + ".grad_output", false}
			layers = layers[1:]
		}
		for _, l := range layers {
			switch {
			case !c.has(l.path):
				c.report.Skipped["of experts whose rows are not in the folder"] += 3
			case len(c.folder.Ranks) > 1:
				c.report.Skipped["of experts on several ranks"] += 3
			default:
				c.layer(l)
			}
		}
	}
}

// has reports whether the folder has the input of a layer.
func (c *check) has(path string) bool {
	return slices.ContainsFunc(c.repeats, func(r step.Repeat) bool { return c.Find(path+".input", r) != "" })
}

// layer judges the products of a layer.
func (c *check) layer(l layer) {
	dims, _ := c.folder.Model.ParamDims(l.weights[0])
	w := c.read(step.Weights, l.weights, step.Repeat{}, dims[1])
	bias := c.read(step.Weights, []string{l.path + ".bias"}, step.Repeat{}, 1)
	if w == nil {
		c.report.Skipped[missing] += 3 * len(c.repeats)
		return
	}
	for _, r := range c.repeats {
		activation := func(name string, width int) *Matrix {
			return c.read(step.Activations, []string{c.Find(name, r)}, r, width)
		}
		x := activation(l.path+".input", w.Cols)
		dy := activation(l.gradient, w.Rows)
		c.product(l, "forward", l.output+r.Suffix(), x, w, activation(l.output, w.Rows), bias)
		c.product(l, "dgrad", l.path+".grad_input"+r.Suffix(), dy, w.T(), activation(l.path+".grad_input", w.Cols), nil)
		if why := c.summed(l); why != "" {
			c.report.Skipped[why]++
		} else {
			c.product(l, "wgrad", l.weights[0], dy.T(), x.T(), c.read(step.Gradients, l.weights, step.Repeat{}, w.Cols), nil)
		}
	}
}

// summed says what a gradient of a weight is a sum over, besides the rows of one product.
func (c *check) summed(l layer) string {
	switch info := c.folder.Info; {
	case len(c.repeats) > 1 || info.MicroBatches > 1:
		return "of gradients summed over micro-batches"
	case info.Ranks > 1 || len(c.folder.Ranks) > 1:
		return "of gradients summed over ranks"
	case c.readers[l.weights[0]] > 1:
		return "of gradients summed over layers that share a weight"
	}
	return ""
}

// read returns tensors as rows of a width, one tensor below the other. It is nil if the folder
// lacks one, or has other rows.
func (c *check) read(class step.Class, names []string, r step.Repeat, width int) *Matrix {
	m := &Matrix{Cols: width}
	for _, name := range names {
		v, err := c.folder.Read(class, name, r)
		if err != nil || len(v.Data) == 0 || len(v.Data)%width != 0 {
			return nil
		}
		if m.Rows > 0 {
			v.Data = slices.Concat(m.Values, v.Data)
		}
		m.DType = v.DType
		m.Values = v.Data
		m.Rows = len(v.Data) / width
	}
	return m
}

// product judges y = x·wᵀ + bias, or counts why it cannot.
func (c *check) product(l layer, pass, tensor string, x, w, y, bias *Matrix) {
	p, why := c.typed(l, x, w, y)
	if p.Bias = bias; why == "" {
		judged := Judged{l.path, pass, tensor, [3]int{y.Rows, y.Cols, x.Cols}, Judge(p)}
		if judged.Verdict != Wrong || judged.FewWrong() || !slices.Contains(c.Wrong, tensor) {
			c.report.Judged = append(c.report.Judged, judged)
			return
		}
		why = "of gradients that are wrong as a whole"
	}
	c.report.Skipped[why]++
}

const missing = "with a tensor that is not in the folder"

// typed returns the product with its formats, or why it has none of those that are judged.
func (c *check) typed(l layer, x, w, y *Matrix) (p Product, why string) {
	if x == nil || w == nil || y == nil {
		return p, missing
	}
	info := c.folder.Info
	single := func(m *Matrix) bool { return m.DType == "F32" || l.fp32 && m.DType == "BF16" }
	p = Product{X: *x, W: *w, Y: *y, BF16: y.DType == "BF16" || info.Autocast == "bfloat16", All: c.All}
	switch {
	case x.Cols != w.Cols || y.Rows != x.Rows || y.Cols != w.Rows:
		why = "with tensors whose shapes do not fit"
	case slices.ContainsFunc(c.folder.Ranks, func(r *step.Rank) bool { return r.Coordinate["tp"] > 0 }):
		why = "of tensor-parallel layers"
	case y.DType != "BF16" && y.DType != "F32":
		why = "with results in " + y.DType
	case c.Quantized(l.path) && !strings.HasSuffix(l.path, ".gate"):
		why = "of quantized operands, whose scales are not in the folder"
	case info.Autocast == "bfloat16": // it casts all operands, and their gradients back
	case x.DType == "BF16" && (w.DType == "BF16" || w.DType == "F32" && y.DType == "BF16") && !l.fp32: // FSDP casts FP32 weights
		p.BF16 = p.BF16 || !slices.ContainsFunc(y.Values, func(v float64) bool { return v != float64(round(float32(v), 16)) })
	case !single(x) || !single(w):
		why = fmt.Sprintf("of %s by %s", x.DType, w.DType)
	case info.Matmul != "high" && info.Matmul != "medium":
		why = "of FP32 operands, which no tensor core multiplies"
	default:
		p.TF32 = true
	}
	return p, why
}

// FewWrong reports whether most of the elements have the bits of the GPU's sums, as where a
// multiplier or a bit of memory fails.
func (p Judged) FewWrong() bool { return 2*p.Equal >= p.Compared }

// Says is a sentence about a product that has not equal bits.
func (p Judged) Says() string {
	equal := fmt.Sprintf("%d of %d elements have equal bits", p.Equal, p.Compared)
	element := fmt.Sprintf("element [%d, %d] is %s, exact %s", p.Element[0], p.Element[1], p.Got, p.Want)
	switch {
	case p.Verdict == OtherOrder:
		return fmt.Sprintf("%s of %s: another order of sums, as of a kernel other than cuBLAS's: %s, rounding explains the others", p.Pass, p.Module, equal)
	case p.FewWrong():
		return fmt.Sprintf("the GPU computed this product wrong: %s of %s: %s; %s", p.Pass, p.Tensor, element, equal)
	}
	return fmt.Sprintf("%s of %s is not the product of the recorded operands: %s. That is the kernel, the card, or a patched linear layer", p.Pass, p.Tensor, element)
}

// Says is the report in words. Products that have equal bits are only counted.
func (r *Report) Says() (items []string) {
	switch {
	case r.Device == "" || r.Device == "cpu":
		return nil
	case r.Skipped == nil:
		return []string{"no rules for " + r.Device + ": H100 and H200 have some"}
	}
	equal, split := 0, 0
	for _, p := range r.Judged {
		if p.Verdict != EqualBits {
			items = append(items, p.Says())
			continue
		}
		if equal++; p.Parts > 1 {
			split++
		}
	}
	first := fmt.Sprintf("%d of %d products have equal bits: the %s computed these right", equal, len(r.Judged), r.Device)
	if split > 0 {
		first += fmt.Sprintf("; %d of them in parts of K", split)
	}
	if items = append([]string{first}, items...); len(r.Judged) == 0 {
		items[0] = "none could be compared"
	}
	for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
		items = append(items, fmt.Sprintf("not checked: %d %s", r.Skipped[why], why))
	}
	return items
}
