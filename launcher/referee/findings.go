package referee

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// From wrong comparisons to findings: one per module and pass, in the order of the forward pass.
// Gradients of weights that are wrong in the same way are one finding.

// conclude turns wrong lines into findings, and sets the verdict.
func (j *judge) conclude() {
	r := j.report
	for _, f := range j.folder.Findings() {
		if f.Wrong {
			r.Findings = append(r.Findings, &Finding{Module: f.Module, Part: "folder", Says: []string{f.Says}})
		} else {
			r.Read = append(r.Read, strings.TrimSpace(f.Module+": "+f.Says))
		}
	}
	gradients := map[string]*Finding{}
	for _, line := range r.Modules {
		parts := map[string]*Finding{}
		for _, c := range line.wrong() {
			part := c.part()
			if part == "gradient" {
				j.addGradient(gradients, line, c)
				continue
			}
			if j.finerIsWrong(line) {
				continue
			}
			f := parts[part]
			if f == nil {
				f = j.finding(line, part)
				parts[part] = f
			}
			f.Names = append(f.Names, c.Name)
			f.Says = append(f.Says, j.say(c, line))
			if c.Scaled {
				f.Factor = c.Factor
			}
			if f.Tokens == nil {
				f.Tokens = c.Tokens
			}
		}
	}
	for note, f := range gradients {
		f.Says = []string{strings.TrimSuffix(j.nameWeights(f.Names)+": "+note, ": ")}
	}
	slices.SortStableFunc(r.Findings, func(a, b *Finding) int { return j.place(a) - j.place(b) })
	for _, why := range j.folder.Incomplete() {
		if len(j.folder.Names(step.Gradients)) > 0 {
			r.doubt("gradients of weights: " + why)
		}
	}
	j.unread()
	r.Verdict = Right
	switch {
	case len(r.Findings) > 0:
		r.Verdict = Wrong
	case r.Compared == 0:
		r.doubt("nothing was compared: the folder has none of the model's activations or gradients under their names")
		r.Verdict = CannotTell
	case len(r.Doubts) > 0:
		r.Verdict = CannotTell
	}
}

// finding adds a finding about a line.
func (j *judge) finding(line *ModuleLine, part string) *Finding {
	f := &Finding{Module: line.Path, Part: part, Causes: line.Causes, Look: lookAt[reference.Kind(line.Kind)]}
	j.report.Findings = append(j.report.Findings, f)
	return f
}

// addGradient adds a wrong gradient to the finding that says the same.
func (j *judge) addGradient(all map[string]*Finding, line *ModuleLine, c *Comparison) {
	note := c.Note
	switch {
	case note != "":
	case c.Scaled:
		note = fmt.Sprintf("the gradient is %s × the local one%s", factorText(c.Factor), j.explainFactor(c.Factor))
	default:
		note = fmt.Sprintf("the gradient is off by %s, rounding explains %s", percent(c.Error), percent(c.Floor))
		if line.Kind != "chain" && len(line.wrong("output", "grad_input")) == 0 {
			note += ", while the module's own backward pass is right. No known mistake explains it: something was added or lost after it, such as a stale gradient of another step, or other tokens"
		}
		for known := range all { // the figures differ, what is said does not
			if all[known].Module == line.Path && all[known].Factor == 0 {
				note = known
			}
		}
	}
	f := all[note]
	for _, other := range all { // the same factor, within rounding
		if c.Scaled && c.Note == "" && other.Factor != 0 && math.Abs(c.Factor/other.Factor-1) < sameFactor+c.Floor {
			f = other
		}
	}
	if f == nil {
		f = j.finding(line, "gradient")
		all[note] = f
	}
	f.Names = append(f.Names, c.Name)
	if c.Scaled && f.Factor == 0 {
		f.Factor = c.Factor
	}
}

// part is the pass that a comparison belongs to.
func (c *Comparison) part() string {
	switch {
	case c.What == "output" && !strings.Contains(c.Name, "grad"):
		return "forward"
	case c.What == "choice" || c.What == "gradient":
		return c.What
	}
	return "backward"
}

// place orders findings: what is wrong forward comes first, in the order of the modules, and then
// backward. A gradient of weights comes last, because most follow from these.
func (j *judge) place(f *Finding) int {
	rank := map[string]int{"choice": 0, "forward": 0, "backward": 1, "gradient": 2, "folder": 2}[f.Part]
	at := slices.IndexFunc(j.modules, func(m *reference.Module) bool { return m.Path == f.Module })
	if rank == 1 { // the backward pass runs from the last module to the first
		at = len(j.modules) - at
	}
	return at + rank*2*len(j.modules)
}

// finerIsWrong reports whether a module inside a coarse one is wrong forward or backward too.
func (j *judge) finerIsWrong(line *ModuleLine) bool {
	m := j.byPath[line.Path]
	return m != nil && slices.ContainsFunc(j.report.Modules, func(other *ModuleLine) bool {
		return slices.Contains(m.Children, other.Path) && len(other.wrong("output", "choice", "grad_input", "grad_logits")) > 0
	})
}

// say is one sentence about a wrong tensor.
func (j *judge) say(c *Comparison, line *ModuleLine) string {
	name := strings.TrimPrefix(c.Name, line.Path+".")
	text := fmt.Sprintf("%s is off by %s; rounding in %s explains %s", name, percent(c.Error), line.Precision, percent(c.Floor))
	switch {
	case c.Statistic == "shape":
		return name + ": " + c.Note
	case c.What == "choice":
		text = fmt.Sprintf("%s: %d of %d tokens chose experts whose scores lie below others by up to %.2g; rounding moves scores by %.2g", name, c.Far, c.Rows, c.Error, c.Floor)
	case c.Statistic == "worst":
		text = fmt.Sprintf("%s: %d of %d tokens are far off, the worst by %s; rounding explains %s", name, c.Far, c.Rows, percent(c.Worst), percent(c.WorstFloor))
	case c.Statistic == "factor":
		text = fmt.Sprintf("%s is %.4f × the reference; rounding in %s explains %.4f", name, c.Factor, line.Precision, 1+c.FactorFloor)
	}
	switch {
	case c.Note != "":
		text += "; " + c.Note
	case c.Scaled && c.Factor == 0 && c.part() == "forward":
		text += ": it is zero, nothing comes from " + classOf(line.Path+".")
	case c.Scaled && c.Statistic != "factor":
		text += fmt.Sprintf(": it is %s × the reference%s", factorText(c.Factor), j.explainFactor(c.Factor))
	}
	return text
}

// percent writes a relative error.
func percent(x float64) string {
	switch {
	case x == 0:
		return "0"
	case !(x < 1e4):
		return "more than 10,000 times"
	case x >= 2:
		return fmt.Sprintf("%.3g times", x)
	case x >= 0.1:
		return fmt.Sprintf("%.0f %%", 100*x)
	case x >= 1e-3:
		return fmt.Sprintf("%.2g %%", 100*x)
	}
	return fmt.Sprintf("%.1e", x)
}

// classOf is the group of weights that a parameter belongs to.
func classOf(name string) string {
	for _, c := range []struct{ part, class string }{
		{".shared_experts.", "the shared experts"}, {".experts.", "the experts"}, {"mlp.gate.weight", "the routers"},
		{"norm", "the norms"}, {".self_attn.", "the attention's projections"}, {".mlp.", "the dense MLPs"},
	} {
		if strings.Contains(name, c.part) {
			return c.class
		}
	}
	return name
}

// nameWeights says which weights are meant: all of a class, those of some layers, or by name.
func (j *judge) nameWeights(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	type place struct {
		class string
		layer int
	}
	found, all := map[place]int{}, map[place]int{}
	for _, name := range names {
		found[place{classOf(name), layerOf(name)}]++
	}
	seen := map[string]bool{}
	for _, m := range j.modules {
		for _, name := range m.Params {
			if !seen[name] {
				all[place{classOf(name), layerOf(name)}]++
			}
			seen[name] = true
		}
	}
	layers := map[string][]int{}
	for p, n := range found {
		if n < all[p] && n < 8 {
			return fmt.Sprintf("%s%s", strings.Join(names[:min(3, len(names))], ", "), more(len(names)-3))
		}
		layers[p.class] = append(layers[p.class], p.layer)
	}
	var texts []string
	for class, of := range layers {
		slices.Sort(of)
		text := class
		if of[0] >= 0 {
			text += " of " + layersText(of)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return fmt.Sprintf("%d weights, %s", len(names), strings.Join(texts, "; "))
}

func layerOf(name string) int {
	layer := -1
	fmt.Sscanf(name, "model.layers.%d.", &layer)
	return layer
}

// layersText writes sorted numbers as "layers 1 to 3".
func layersText(x []int) string {
	if len(x) == 1 {
		return fmt.Sprintf("layer %d", x[0])
	}
	if x[len(x)-1]-x[0] == len(x)-1 {
		return fmt.Sprintf("layers %d to %d", x[0], x[len(x)-1])
	}
	return "layers " + joinInts(x)
}

// lookAt says where the code of a kind of module usually has its fault.
var lookAt = map[reference.Kind]string{
	reference.Embedding: "the lookup of token ids, a scale of embeddings, and how its gradient is summed",
	reference.Norm:      "eps and where it stands, the cast before the weight, and which tensor is normed",
	reference.Linear:    "which weight it reads and its orientation; for gradients, hooks and reductions of this weight",
	reference.Core:      "the rotary embedding, the scale, the mask, and how query heads map to key heads",
	reference.Attention: "norms of latents, queries and keys, then the rotary embedding, the scale and the mask",
	reference.Act:       "the activation, and which half is the gate",
	reference.MLP:       "the activation, and which half is the gate",
	reference.Router:    "the score function, the selection bias, groups, normalization and routed_scaling_factor",
	reference.Experts:   "the dispatch of tokens, the order of experts, and where the weights multiply",
	reference.MoE:       "the router, the dispatch, and the sum with the shared experts",
	reference.Block:     "the residual adds and the order of norms",
	reference.Head:      "the shift of labels, ignored positions, and the reduction of the loss",
	reference.Loss:      "the shift of labels, ignored positions, and the reduction of the loss",
	reference.Residual:  "the terms of this sum, and whether each is detached",
	reference.Handover:  "what happens to the tensor between these two modules",
}
