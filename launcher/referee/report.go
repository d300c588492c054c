package referee

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/gpusums"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// Verdict is what the referee says of a module, or of the step.
type Verdict string

// The verdicts. CannotTell: something that was given could not be judged.
const (
	Right      Verdict = "right"
	Wrong      Verdict = "wrong"
	CannotTell Verdict = "cannot tell"
)

// Report is all that the referee found.
type Report struct {
	Folder   string        `json:"folder"`
	Verdict  Verdict       `json:"verdict"`
	Read     []string      `json:"read"`     // what was there
	Missing  []string      `json:"missing"`  // what was not
	Unknown  []string      `json:"unknown"`  // names in the folder that the model does not have
	Unread   []string      `json:"unread"`   // names that it has, but which were not compared
	Modules  []*ModuleLine `json:"modules"`  // in the order of the forward pass
	Findings []*Finding    `json:"findings"` // the first is the cause to look at
	Doubts   []string      `json:"doubts"`   // what cannot be told, and why
	Hidden   int           `json:"hidden"`   // known mistakes that right modules may have
	// The largest strain of each statistic, of all that is right: 1 is the threshold.
	Strains map[string]float64 `json:"strains"`
	// Resolution is the smallest relative error that every judged module would have shown.
	Resolution float64 `json:"resolution"`
	Compared   int     `json:"compared"`

	Products *gpusums.Report `json:"gpu"`
}

// ModuleLine is the verdict on one module.
type ModuleLine struct {
	Path        string       `json:"path"`
	Kind        string       `json:"kind"`
	Layer       int          `json:"layer"`
	Precision   string       `json:"precision"`
	Verdict     Verdict      `json:"verdict"`
	Comparisons []Comparison `json:"comparisons"`
	Causes      []Cause      `json:"causes,omitempty"`
	Hidden      []Cause      `json:"hidden,omitempty"` // mistakes that would change a right module by less than rounding
}

// Cause is a known mistake that explains a wrong module: with it, the reference agrees.
type Cause struct {
	Name   string  `json:"name"`
	Says   string  `json:"says"`
	Strain float64 `json:"strain"` // of the module under this mistake
}

// Finding is something wrong, in words.
type Finding struct {
	Module string   `json:"module"`
	Part   string   `json:"part"` // forward, backward, gradient, choice, folder
	Says   []string `json:"says"`
	Causes []Cause  `json:"causes,omitempty"`
	Factor float64  `json:"factor,omitempty"`
	Names  []string `json:"names,omitempty"` // the tensors
	Tokens []int    `json:"tokens,omitempty"`
	Look   string   `json:"look,omitempty"`
}

// JSON returns the whole report.
func (r *Report) JSON() ([]byte, error) { return json.Marshal(r) }

// doubt adds a doubt once.
func (r *Report) doubt(says string) {
	if !slices.Contains(r.Doubts, says) {
		r.Doubts = append(r.Doubts, says)
	}
}

// wrong returns the wrong comparisons of a line, or only those of some kinds.
func (l *ModuleLine) wrong(what ...string) (all []*Comparison) {
	for i := range l.Comparisons {
		if c := &l.Comparisons[i]; c.Wrong() && (len(what) == 0 || slices.Contains(what, c.What)) {
			all = append(all, c)
		}
	}
	return all
}

func (l *ModuleLine) setVerdict() {
	l.Verdict = Right
	if len(l.wrong()) > 0 {
		l.Verdict = Wrong
	}
}

// add keeps the worst comparison of each tensor of several calls.
func (l *ModuleLine) add(found []Comparison) {
	for i, c := range found {
		if i >= len(l.Comparisons) || l.Comparisons[i].What != c.What {
			l.Comparisons = append(l.Comparisons, c)
		} else if !(c.Strain <= l.Comparisons[i].Strain) {
			l.Comparisons[i] = c
		}
	}
}

// worst returns the comparison with the largest strain of a kind; nil: none.
func (l *ModuleLine) worst(what ...string) (worst *Comparison) {
	for i := range l.Comparisons {
		c := &l.Comparisons[i]
		if slices.Contains(what, c.What) && (worst == nil || !(c.Strain <= worst.Strain)) {
			worst = c
		}
	}
	return worst
}

// introduce says what is in the folder.
func (j *judge) introduce() {
	f, r := j.folder, j.report
	r.Read = append(r.Read, fmt.Sprintf("%s, %s: %d layers, hidden %d, %d experts", f.Form, f.Model.Family, f.Model.Layers, f.Model.Hidden, f.Model.Experts))
	if b, err := f.Batch(j.repeats[0]); err == nil {
		r.Read = append(r.Read, fmt.Sprintf("batch of %d sequences of %d tokens, %d forward passes", b.Batch, b.Seq, len(j.repeats)))
	}
	for _, class := range classes {
		if names := f.Names(class.class, false); len(names) > 0 {
			r.Read = append(r.Read, fmt.Sprintf("%s: %d tensors", class.name, len(names)))
		} else {
			r.Missing = append(r.Missing, class.name)
		}
	}
	for _, m := range j.modules {
		if dtype, _ := f.DType(step.Activations, m.Path+".logits", j.repeats[0]); dtype == safetensors.BF16 && f.Model.RouterFP32 {
			r.Read = append(r.Read, m.Path+": its logits are BF16, where the model's own code keeps FP32: its choices and weights are judged in BF16")
		}
	}
	if loss := j.indexLoss(); loss.Kind != "" && (f.Model.IndexTopK == 0 || !slices.Contains([]string{"", "sparse", "warmup"}, loss.Stage)) {
		r.doubt(fmt.Sprintf("the auxiliary loss index_kl of stage %.40q is not known: the model needs an indexer, and the stage is sparse or warmup", loss.Stage))
	}
	for _, s := range f.Info.Silent {
		if j.byPath[s] != nil { // others are containers, or parts that need no judgment
			r.Missing = append(r.Missing, s+" (its hooks never ran)")
		}
	}
}

var classes = []struct {
	class step.Class
	name  string
}{{step.Activations, "activations"}, {step.Gradients, "gradients"}, {step.Weights, "weights"}, {step.After, "weights after the step"}}

// conclude turns wrong lines into findings, one per module and pass, and sets the verdict.
// Gradients of weights that are wrong in the same way are one finding.
func (j *judge) conclude() {
	r := j.report
	for _, f := range j.folder.Findings {
		if r.Read = append(r.Read, f.Module+": "+f.Says); f.Wrong {
			r.Findings = append(r.Findings, &Finding{Module: f.Module, Part: "folder", Says: []string{f.Says}})
		}
	}
	var gradients []*Finding
	for _, line := range r.Modules {
		parts := map[string]*Finding{}
		for i := range line.Comparisons {
			c := &line.Comparisons[i]
			c.bound()
			if r.Compared++; !c.Wrong() {
				r.Strains[c.What+" "+c.Statistic] = max(r.Strains[c.What+" "+c.Statistic], c.Strain)
				r.Resolution = max(r.Resolution, c.Resolution)
				continue
			}
			part := c.part()
			if part == "gradient" {
				gradients = j.addGradient(gradients, line, c)
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
	for _, f := range gradients {
		f.Says[0] = nameWeights(f.Names) + ": " + f.Says[0]
	}
	j.blame()
	slices.SortStableFunc(r.Findings, func(a, b *Finding) int { return j.place(a) - j.place(b) })
	for _, why := range j.folder.Incomplete() {
		if len(j.folder.Names(step.Gradients, false)) > 0 {
			r.doubt("gradients of weights: " + why)
		}
	}
	j.unread()
	switch r.Verdict = Right; {
	case len(r.Findings) > 0:
		r.Verdict = Wrong
	case len(r.Doubts) > 0:
		r.Verdict = CannotTell
	}
}

// most stands for infinity and NaN.
const most = 1e9

// bound replaces what JSON has no number for, and shortens the others.
func (c *Comparison) bound() {
	for _, x := range []*float64{&c.Error, &c.Floor, &c.Worst, &c.WorstFloor, &c.Strain, &c.Resolution, &c.Factor, &c.FactorFloor, &c.Rest} {
		if !(*x > -most && *x < most) {
			*x = most
		}
		*x, _ = strconv.ParseFloat(strconv.FormatFloat(*x, 'g', 5, 64), 64)
	}
}

// finding adds a finding about a line. kinds.txt says where the code of a kind of module usually
// has its fault.
func (j *judge) finding(line *ModuleLine, part string) *Finding {
	_, where, _ := strings.Cut("\n"+kindTable, "\n"+line.Kind+" ")
	where, _, _ = strings.Cut(where, "\n")
	f := &Finding{Module: line.Path, Part: part, Causes: line.Causes, Look: where}
	j.report.Findings = append(j.report.Findings, f)
	return f
}

//go:embed kinds.txt
var kindTable string

// addGradient adds a wrong gradient to the finding that says the same: in the same words, by the
// same factor, or of the same module without a factor.
func (j *judge) addGradient(all []*Finding, line *ModuleLine, c *Comparison) []*Finding {
	note, plainly := c.Note, false
	switch {
	case note != "":
	case c.Scaled:
		note = fmt.Sprintf("the gradient is %s × the local one%s", factorText(c.Factor), j.explainFactor(c.Factor))
	default:
		plainly = true
		note = fmt.Sprintf("the gradient is off by %s, rounding explains %s", percent(c.Error), percent(c.Floor))
		if line.Kind != "chain" && len(line.Causes) == 0 && len(line.wrong("output", "grad_input")) == 0 {
			note += ", while the module's own backward pass is right. No known mistake explains it: something was added or lost after it, such as a stale gradient of another step, or other tokens"
		}
	}
	at := slices.IndexFunc(all, func(f *Finding) bool {
		return f.Says[0] == note || plainly && f.Module == line.Path && f.Factor == 0 ||
			c.Scaled && c.Note == "" && f.Factor != 0 && math.Abs(c.Factor/f.Factor-1) < sameFactor+c.Floor
	})
	if at < 0 {
		at = len(all)
		all = append(all, j.finding(line, "gradient"))
		all[at].Says = []string{note}
	}
	f := all[at]
	f.Names = append(f.Names, c.Name)
	if c.Scaled && f.Factor == 0 {
		f.Factor = c.Factor
	}
	return all
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
		return slices.Contains(m.Children, j.byPath[other.Path]) && len(other.wrong("output", "choice", "grad_input", "grad_logits")) > 0
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
		chosen := map[bool]string{true: "experts", false: "keys"}[line.Kind == string(reference.Router)]
		text = fmt.Sprintf("%s: %d of %d tokens chose %s whose scores lie below others by up to %.2g; rounding moves scores by %.2g", name, c.Far, c.Rows, chosen, c.Error, c.Floor)
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

// classOf is the group of weights that a parameter belongs to.
func classOf(name string) string {
	for _, c := range [][2]string{
		{".indexer.", "the indexers"}, {".shared_experts.", "the shared experts"}, {".experts.", "the experts"}, {"mlp.gate.weight", "the routers"},
		{"norm", "the norms"}, {".self_attn.", "the attention's projections"}, {".mlp.", "the dense MLPs"},
	} {
		if strings.Contains(name, c[0]) {
			return c[1]
		}
	}
	return name
}

// nameWeights says which weights are meant: by name, or the classes and layers of many.
func nameWeights(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	layers, texts := map[string][]int{}, []string{}
	for _, name := range names {
		if class, layer := classOf(name), layerOf(name); !slices.Contains(layers[class], layer) {
			layers[class] = append(layers[class], layer)
		}
	}
	for class, of := range layers {
		if slices.Sort(of); of[0] >= 0 {
			class += " of layers " + joinInts(of)
		}
		texts = append(texts, class)
	}
	slices.Sort(texts)
	return fmt.Sprintf("%d weights, %s", len(names), strings.Join(texts, "; "))
}

func layerOf(name string) int {
	layer := -1
	fmt.Sscanf(name, "model.layers.%d.", &layer)
	return layer
}

func joinInts(x []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(x), " ", ", "), "[]")
}

// extras are tensors that python/step.py records and that say nothing more: the ids again, the
// activation function alone, probabilities, and the choices as the experts got them.
var extras = regexp.MustCompile(`^model\.(embed_tokens\.)?input|\.act_fn\.|^model\.rotary_emb\.|\.self_attn\.(grad_)?output\.[12]|\.(q_b_norm|input_norm|rotary_emb|kv_norm)\.|\.compressor\.(indexer\.|scorer\.)*(grad_)?(in|out)put|\.self_attn\.(indexer\.input\.2|input\.1)|\.layers\.\d+\.(in|out)put\.1|\.mlp\.(gate\.)?input\.1|\.experts\.input\.1|\.experts\.\d+\.\w+_proj\.|\.experts\.(gate_up|gate|up|down)_proj$`)

// unread lists the names that no module asked for: those that the model does not have, and those
// that could not be compared. If none of a class was, its names are those of another program.
func (j *judge) unread() {
	known := map[string]bool{}
	for _, m := range j.modules {
		for _, p := range slices.Concat(m.Inputs, m.Outputs) {
			known[p.Name], known[p.Grad] = true, true
		}
		for _, name := range slices.Concat(m.Params, m.Buffers) {
			known[name] = true
		}
	}
	for _, class := range classes[:3] {
		given := j.folder.Names(class.class, false)
		unread := j.folder.Names(class.class, true)
		if class.class != step.Weights && len(given) > 0 && len(unread) == len(given) {
			const known = "model.layers.0.input_layernorm.input, model.layers.0.input_layernorm.output, model.layers.0.input_layernorm.weight"
			j.report.doubt(fmt.Sprintf("none of the %d %s was compared: they have names such as %s; expected are names such as %s", len(given), class.name, strings.Join(given[:min(3, len(given))], ", "), known))
		}
		for _, name := range unread {
			list := &j.report.Unknown
			if plain, _, _ := strings.Cut(name, "@"); known[plain] || extras.MatchString(name) {
				list = &j.report.Unread
			}
			*list = append(*list, class.name+": "+name)
		}
	}
}
