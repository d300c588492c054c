package referee

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// From wrong comparisons to findings: one per wrong module and part, in the order of the forward
// pass; gradients with the same factor are one finding.

// sameFactor is how far two factors may be apart to count as one.
const sameFactor = 0.01

// settle finds the factor that most gradients share. It is no fault of any one module: averaging
// over ranks or clipping scales all. Gradients without it are then the wrong ones.
func (j *judge) settle() {
	var all []*Comparison
	for _, line := range j.report.Modules {
		for i := range line.Comparisons {
			if c := &line.Comparisons[i]; c.What == "gradient" && c.Factor != 0 && (c.Scaled || !c.Wrong()) {
				all = append(all, c)
			}
		}
	}
	common, share := 1.0, 0
	for _, c := range all {
		n := 0
		for _, d := range all {
			if math.Abs(d.Factor/c.Factor-1) < sameFactor+c.Floor {
				n++
			}
		}
		if n > share {
			common, share = c.Factor, n
		}
	}
	if math.Abs(common-1) < 0.03 || share*3 < len(all)*2 || share < 3 {
		return
	}
	for _, c := range all {
		relative := c.Factor / common
		if c.Scaled && math.Abs(relative-1) < sameFactor+c.Floor {
			c.Strain, c.Note, c.Scaled = c.Rest/(wholeBound*max(c.Floor, 1e-30)), "the factor of all gradients", false
			c.Strain = min(c.Strain, 1)
			continue
		}
		c.Scaled, c.Strain = true, max(c.Strain, math.Abs(relative-1)/max(c.Floor, 1e-30))
		c.Note = fmt.Sprintf("all other gradients are %s × their local ones, this is %s ×", factorText(common), factorText(c.Factor))
	}
	for _, line := range j.report.Modules {
		if line.Verdict == Wrong && len(line.wrong()) == 0 {
			line.Verdict, line.Causes = Right, nil
		}
		if len(line.wrong()) > 0 {
			line.Verdict = Wrong
		}
	}
	j.commonFactor(common, share)
}

// commonFactor says what a factor of all gradients means. It is right only if the folder states it.
func (j *judge) commonFactor(k float64, count int) {
	says := fmt.Sprintf("all %d gradients of weights are %s × what the recorded output gradients give", count, factorText(k))
	near := func(x float64) bool { return x > 0 && math.Abs(k/x-1) < sameFactor }
	scale := j.folder.Info.LossScale
	if near(1/scale) && scale != 1 {
		j.report.Read = append(j.report.Read, says+": the loss scale of step.json was taken off")
		return
	}
	var readings []string
	for _, m := range j.meshSizes() {
		if m.name == "dp" && near(1/float64(m.size)) {
			j.report.Read = append(j.report.Read, says+": the mean over dp, as data parallelism has it")
			return
		}
		readings = append(readings, factorReadings(k, m.name, float64(m.size))...)
	}
	if k < 1 {
		readings = append(readings, "clipped before they were saved")
	}
	readings = append(readings, "another loss scale than step.json states")
	j.report.Doubts = append(j.report.Doubts, says+"; step.json does not state why. It may be: "+strings.Join(readings, "; "))
}

type size struct {
	name string
	size int
}

// meshSizes lists what a factor may come from: dimensions of the mesh, then the other counts of the
// step.
func (j *judge) meshSizes() (all []size) {
	sizes := map[string]int{}
	repeats := j.folder.Repeats()
	if len(repeats) == 0 {
		return nil
	}
	ranks := j.folder.RankTokens(repeats[0])
	for _, r := range ranks {
		for axis, at := range r.Coordinate {
			sizes[axis] = max(sizes[axis], at+1)
		}
	}
	for _, axis := range []string{"dp", "dp_replicate", "dp_shard", "ep", "tp", "cp", "pp", "etp"} {
		if sizes[axis] > 1 {
			all = append(all, size{axis, sizes[axis]})
		}
	}
	add := func(name string, n int) {
		if n > 1 {
			all = append(all, size{name, n})
		}
	}
	add("ranks", max(len(ranks), j.folder.Info.Ranks))
	add("micro-batches", max(j.folder.Info.MicroBatches, len(repeats)))
	if s := j.folder.Info.LossScale; s > 1 && s < 1<<30 {
		add("loss scale", int(s))
	}
	if b, err := j.folder.Batch(repeats[0]); err == nil {
		add("sequences", b.Batch)
		add("tokens of a sequence", b.Seq)
		add("tokens", b.Batch*b.Seq)
	}
	c := j.folder.Model
	add("experts per token", c.TopK)
	add("experts", c.Experts)
	add("layers", c.Layers)
	return all
}

func factorReadings(k float64, name string, n float64) []string {
	switch {
	case math.Abs(k/n-1) < sameFactor:
		return []string{fmt.Sprintf("%g is the number of %s: a reduction over it done twice, or a sum for a mean", n, name)}
	case math.Abs(k*n-1) < sameFactor:
		return []string{fmt.Sprintf("%g is the number of %s: divided by it once too often", n, name)}
	}
	return nil
}

// explainFactor says what a factor may come from; "" if nothing fits.
func (j *judge) explainFactor(k float64) string {
	switch {
	case k == 0:
		return "they are zero: frozen, detached, or never summed up"
	case math.Abs(k+1) < sameFactor:
		return "the sign is wrong"
	}
	var readings []string
	if s := j.folder.Model.RouteScale; s != 1 && (math.Abs(k/s-1) < sameFactor || math.Abs(k*s-1) < sameFactor) {
		readings = append(readings, fmt.Sprintf("%g is routed_scaling_factor", s))
	}
	for _, m := range j.meshSizes() {
		readings = append(readings, factorReadings(k, m.name, float64(m.size))...)
	}
	if len(readings) == 0 && math.Abs(k/2-1) < sameFactor {
		return "it is added twice"
	}
	return strings.Join(readings, "; or ")
}

// conclude turns wrong lines into findings, and sets the verdict.
func (j *judge) conclude() {
	r := j.report
	for _, f := range j.folder.Findings() {
		if f.Wrong {
			r.Wrongs = append(r.Wrongs, &Finding{Module: f.Module, Part: "folder", Says: []string{f.Says}})
		} else {
			r.Read = append(r.Read, strings.TrimSpace(f.Module+": "+f.Says))
		}
	}
	for _, line := range r.Modules {
		if line.Verdict == Wrong && !j.finerIsWrong(line) {
			r.Wrongs = append(r.Wrongs, j.moduleFindings(line)...)
		}
	}
	r.Wrongs = append(r.Wrongs, j.factorFindings()...)
	slices.SortStableFunc(r.Wrongs, func(a, b *Finding) int { return j.place(a) - j.place(b) })
	for _, why := range j.folder.Incomplete() {
		if len(j.folder.Names(step.Gradients)) > 0 {
			r.Doubts = append(r.Doubts, "gradients of weights: "+why)
		}
	}
	j.unread()
	switch {
	case len(r.Wrongs) > 0:
		r.Verdict = Wrong
	case r.Compared == 0:
		r.Verdict = CannotTell
		r.Doubts = append(r.Doubts, "nothing was compared: the folder has none of the model's activations or gradients under their names")
	case len(r.Doubts) > 0:
		r.Verdict = CannotTell
	default:
		r.Verdict = Right
	}
}

// place orders findings: what is wrong forward comes first, in the order of the modules.
func (j *judge) place(f *Finding) int {
	at := len(j.modules)
	for i, m := range j.modules {
		if m.Path == f.Module {
			at = i
			break
		}
	}
	return at + map[string]int{"choice": 0, "forward": 0, "backward": 1, "gradient": 2, "folder": 3}[f.Part]*(len(j.modules)+1)
}

// finerIsWrong reports whether a module inside a coarse one is wrong too, and says where.
func (j *judge) finerIsWrong(line *ModuleLine) bool {
	m := j.byPath[line.Path]
	if m == nil {
		return false
	}
	children := m.Children
	return slices.ContainsFunc(j.report.Modules, func(other *ModuleLine) bool {
		return other.Verdict == Wrong && slices.Contains(children, other.Path)
	})
}

var partsOf = map[string]string{"output": "forward", "choice": "choice", "grad_input": "backward", "grad_logits": "backward", "gradient": "gradient"}

// moduleFindings are the findings of one line: its forward pass, its choices, its backward pass and
// its weights' gradients, unless these are scaled only.
func (j *judge) moduleFindings(line *ModuleLine) (all []*Finding) {
	byPart := map[string]*Finding{}
	for _, c := range line.wrong() {
		part := partsOf[c.What]
		if part == "gradient" && c.Scaled && c.Note == "" || part != "gradient" && part != "backward" && byPart["backward"] != nil {
			continue
		}
		if m := j.byPath[line.Path]; m != nil && glue(m) && strings.Contains(c.Name, "grad") {
			part = "backward"
		}
		f := byPart[part]
		if f == nil {
			f = &Finding{Module: line.Path, Part: part, Causes: line.Causes, Look: lookAt[reference.Kind(line.Kind)]}
			byPart[part] = f
			all = append(all, f)
		}
		f.Names = append(f.Names, c.Name)
		if len(f.Says) < 4 {
			f.Says = append(f.Says, j.sayComparison(c, line))
		}
		if c.Scaled {
			f.Factor = c.Factor
		}
		if len(f.Tokens) == 0 && c.What != "gradient" {
			f.Tokens = c.Tokens
		}
	}
	return all
}

// sayComparison is one sentence about a wrong tensor.
func (j *judge) sayComparison(c *Comparison, line *ModuleLine) string {
	name := strings.TrimPrefix(c.Name, line.Path+".")
	switch {
	case c.Statistic == "shape" || c.Statistic == "absent":
		return name + ": " + c.Note
	case c.What == "choice":
		says := fmt.Sprintf("%s: %s of %d tokens chose experts whose scores lie below others by up to %.2g; rounding moves their scores by %.2g", name, counted2(c.Far), c.Rows, c.Error, c.Floor)
		return strings.TrimSuffix(says+"; "+c.Note, "; ")
	}
	var text string
	if strings.HasSuffix(c.Statistic, "worst") {
		text = fmt.Sprintf("%s: %d of %d %s are far off, the worst by %s; rounding explains %s", name, c.Far, c.Rows, rowsName(c), percent(c.Worst), percent(c.WorstFloor))
	} else {
		text = fmt.Sprintf("%s is off by %s; rounding in %s explains %s", name, percent(c.Error), line.Precision, percent(c.Floor))
	}
	switch {
	case c.Note != "":
		text += "; " + c.Note
	case c.Scaled && c.Factor == 0:
		text += ": it is zero"
	case c.Scaled:
		text += fmt.Sprintf(": it is %s × the reference", factorText(c.Factor))
		if why := j.explainFactor(c.Factor); why != "" {
			text += " (" + why + ")"
		}
	}
	return text
}

func rowsName(c *Comparison) string {
	if c.What == "gradient" {
		return "rows"
	}
	return "tokens"
}

func counted2(n int) string { return fmt.Sprint(n) }

// percent writes a relative error.
func percent(x float64) string {
	switch {
	case x != x || math.IsInf(x, 0) || x > 1e4:
		return "more than 10,000 times"
	case x >= 10:
		return fmt.Sprintf("%.0f times", x)
	case x >= 1e-3:
		return fmt.Sprintf("%.2g %%", 100*x)
	}
	return fmt.Sprintf("%.1e", x)
}

// factorFindings groups scaled gradients by their factor.
func (j *judge) factorFindings() (all []*Finding) {
	type group struct {
		finding *Finding
		factor  float64
		class   string
	}
	var groups []*group
	for _, line := range j.report.Modules {
		if line.Verdict != Wrong {
			continue
		}
		for _, c := range line.wrong() {
			if c.What != "gradient" || !c.Scaled || c.Note != "" {
				continue
			}
			i := slices.IndexFunc(groups, func(g *group) bool {
				return g.class == classOf(c.Name) && math.Abs(g.factor-c.Factor) <= sameFactor*math.Max(1, math.Abs(g.factor))+c.Floor
			})
			if i < 0 {
				i = len(groups)
				groups = append(groups, &group{&Finding{Module: line.Path, Part: "gradient", Causes: line.Causes, Factor: c.Factor, Look: lookAt[reference.Kind(line.Kind)]}, c.Factor, classOf(c.Name)})
			}
			groups[i].finding.Names = append(groups[i].finding.Names, c.Name)
		}
	}
	for _, g := range groups {
		f := g.finding
		text := fmt.Sprintf("%s: the gradient is %s × the local one", j.describeNames(f.Names, g.class), factorText(g.factor))
		if why := j.explainFactor(g.factor); why != "" {
			text += ": " + why
		}
		f.Says = []string{text}
		all = append(all, f)
	}
	return all
}

// classOf is the group of weights that a parameter belongs to.
func classOf(name string) string {
	switch {
	case strings.Contains(name, ".shared_experts."):
		return "shared experts"
	case strings.Contains(name, ".experts."):
		return "experts"
	case strings.HasSuffix(name, "mlp.gate.weight"):
		return "routers"
	case strings.Contains(name, "norm"):
		return "norms"
	case strings.Contains(name, ".self_attn."):
		return "attention"
	case strings.Contains(name, ".mlp."):
		return "dense MLPs"
	}
	return name
}

// describeNames says which weights of a class are meant: all, those of some layers, or by name.
func (j *judge) describeNames(names []string, class string) string {
	if len(names) == 1 {
		return names[0]
	}
	layers, total, inLayers := map[int]int{}, 0, map[int]int{}
	for _, n := range names {
		layers[layerOf(n)]++
	}
	for _, m := range j.modules {
		if len(m.Children) > 0 {
			continue
		}
		for _, p := range m.Params {
			if classOf(p) == class {
				total++
				inLayers[layerOf(p)]++
			}
		}
	}
	if len(names) == total {
		return fmt.Sprintf("all %d weights of %s", total, class)
	}
	var whole, part []int
	for l, n := range layers {
		if n == inLayers[l] {
			whole = append(whole, l)
		} else {
			part = append(part, l)
		}
	}
	slices.Sort(whole)
	if len(part) == 0 {
		return fmt.Sprintf("all %d weights of %s in layers %s", len(names), class, ranges(whole))
	}
	return fmt.Sprintf("%d weights of %s: %s", len(names), class, strings.Join(names[:min(3, len(names))], ", "))
}

func layerOf(name string) int {
	layer := -1
	fmt.Sscanf(name, "model.layers.%d.", &layer)
	return layer
}

// ranges writes sorted numbers as 1 to 3, 5.
func ranges(x []int) string {
	var parts []string
	for i := 0; i < len(x); {
		k := i
		for k+1 < len(x) && x[k+1] == x[k]+1 {
			k++
		}
		if k > i {
			parts = append(parts, fmt.Sprintf("%d to %d", x[i], x[k]))
		} else {
			parts = append(parts, fmt.Sprint(x[i]))
		}
		i = k + 1
	}
	return strings.Join(parts, ", ")
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
	reference.Balance:   "the coefficient and the counts of the auxiliary loss",
	reference.Residual:  "the terms of this sum, and whether each is detached",
	reference.Handover:  "what happens to the tensor between these two modules",
}
