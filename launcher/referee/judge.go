// Package referee judges one training step of another program. It computes each module again with
// the reference of package reference, on the input, the output gradient and the choices that the
// program recorded, and compares. What rounding alone costs is computed too: the floor. A module is
// wrong if it is farther off than rounding explains. For a wrong one, known mistakes are tried: the
// one under which the reference agrees is its cause.
package referee

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// judge is a judgment under way.
type judge struct {
	folder  *step.Folder
	modules []*reference.Module
	byPath  map[string]*reference.Module
	same    map[string][]string // ports that hold the same tensor as another
	report  *Report
	tell    func(*ModuleLine)

	chosenOf  *step.Repeat
	chosen    map[string]reference.Tensor
	weightsOf *reference.Module
	weights   map[string]reference.Tensor

	repeats  []step.Repeat
	known    map[string]bool                // whether the folder has a port, in any repeat
	owners   map[string][]*reference.Module // that are judged backward, by parameter
	sums     map[string]*gradientSum
	finished map[string]bool // parameters whose gradient was judged
}

// Options say what to judge and where the lines of modules go as they are judged.
type Options struct {
	Tell func(*ModuleLine) // called for every module in order; nil: nothing
}

// Judge reads a folder and judges every module of it.
func Judge(path string, options Options) (*Report, error) {
	folder, err := step.Open(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return judgeFolder(folder, options)
}

func judgeFolder(folder *step.Folder, options Options) (*Report, error) {
	j := &judge{
		folder: folder, tell: options.Tell,
		report: &Report{Folder: folder.Path, Strains: map[string]float64{}},
		known:  map[string]bool{}, owners: map[string][]*reference.Module{}, sums: map[string]*gradientSum{}, finished: map[string]bool{},
	}
	if j.tell == nil {
		j.tell = func(*ModuleLine) {}
	}
	j.prepare()
	j.introduce()
	var chosen []*reference.Module
	for _, m := range j.modules {
		if j.worth(m) {
			chosen = append(chosen, m)
		}
	}
	j.own(chosen)
	j.ignoreTied()
	for _, m := range chosen {
		line, err := j.module(m)
		if err != nil { // this module cannot be judged, others can
			j.report.doubt(err.Error())
			continue
		}
		if line != nil && len(line.Comparisons) > 0 {
			j.print(line)
		}
	}
	if err := j.endToEnd(); err != nil {
		j.report.doubt(err.Error())
	}
	j.settle()
	for _, line := range j.report.Modules {
		j.report.note(line.Comparisons)
	}
	j.conclude()
	return j.report, nil
}

// prepare lists the modules of the model, and which ports hold the same tensor.
func (j *judge) prepare() {
	if _, ok := j.folder.DType(step.Weights, fmt.Sprintf("model.layers.%d.enorm.weight", j.folder.Model.Layers)); !ok {
		j.folder.Model.MTPLayers = 0
	}
	j.repeats = j.folder.Repeats()
	j.modules, j.byPath, j.same = j.folder.Model.Modules(), map[string]*reference.Module{}, map[string][]string{}
	for _, m := range j.modules {
		j.byPath[m.Path] = m
		if m.Kind == reference.Handover && len(m.Inputs) == 1 && m.Inputs[0].Hi == 0 && m.Outputs[0].Hi == 0 {
			from, to := m.Inputs[0].Name, m.Outputs[0].Name
			j.same[from], j.same[to] = append(j.same[from], to), append(j.same[to], from)
		}
	}
}

// find returns the name under which the folder has a port: its own, or that of a port that holds
// the same tensor, such as the output of the layer before. It is empty if the folder has none.
func (j *judge) find(name string, r step.Repeat) string {
	seen := []string{name}
	for i := 0; i < len(seen); i++ {
		// V2's rotary tables are complex numbers, which have no port.
		if dtype, ok := j.folder.DType(step.Activations, seen[i]+r.Suffix()); ok && seen[i] != "" && dtype != "C64" {
			return seen[i]
		}
		for _, other := range j.same[seen[i]] {
			if !slices.Contains(seen, other) {
				seen = append(seen, other)
			}
		}
	}
	return ""
}

// has reports whether the folder has a tensor of any repeat.
func (j *judge) has(name string) bool {
	has, ok := j.known[name]
	if !ok && name != "" {
		has = slices.ContainsFunc(j.repeats, func(r step.Repeat) bool { return j.find(name, r) != "" })
		j.known[name] = has
	}
	return has
}

// own says which modules add to the gradient of each parameter. A module does not if a finer one
// inside it does.
func (j *judge) own(chosen []*reference.Module) {
	for _, m := range slices.Backward(chosen) { // finer ones first
		_, backward := j.present(m)
		for _, p := range m.Params {
			finer := func(o *reference.Module) bool { return slices.Contains(m.Children, o.Path) }
			if backward && !slices.ContainsFunc(j.owners[p], finer) {
				j.owners[p] = append(j.owners[p], m)
			}
		}
	}
}

// glue reports whether a module has no formula of its own: it only says what equals what.
func glue(m *reference.Module) bool {
	return m.Kind == reference.Residual || m.Kind == reference.Handover
}

// present reports whether a module can be judged forward, and backward.
func (j *judge) present(m *reference.Module) (forward, backward bool) {
	for _, p := range m.Inputs {
		if !j.has(p.Name) {
			return false, false
		}
	}
	loss := m.Kind == reference.Head || m.Kind == reference.Loss
	backward = !loss || j.has(m.Inputs[0].Grad)
	for _, p := range m.Outputs {
		forward = forward || j.has(p.Name)
		backward = backward && (loss || j.has(p.Grad))
	}
	return forward, backward
}

// covered reports whether finer modules inside one are judged, all of them.
func (j *judge) covered(m *reference.Module) (forward, backward bool) {
	if len(m.Children) == 0 {
		return false, false
	}
	inner := map[string]bool{}
	for _, path := range m.Children {
		for _, deeper := range j.byPath[path].Children {
			inner[deeper] = true
		}
	}
	forward, backward = true, true
	for _, path := range m.Children {
		child := j.byPath[path]
		if inner[path] || child.Kind == reference.Balance || glue(child) && strings.HasSuffix(path, ".grad") {
			continue
		}
		f, b := j.present(child)
		if len(child.Children) > 0 {
			cf, cb := j.covered(child)
			f, b = f || cf, b || cb
		}
		forward, backward = forward && f, backward && (b || glue(child))
	}
	return forward, backward
}

// worth reports whether a module is judged: it is there, and finer ones do not say the same.
func (j *judge) worth(m *reference.Module) bool {
	forward, backward := j.present(m)
	if m.Kind == reference.Balance {
		return false // part of the judgment of its router
	}
	if !forward && !backward {
		return false
	}
	coveredForward, coveredBackward := j.covered(m)
	return forward && !coveredForward || backward && !coveredBackward
}

// ignoreTied drops parameters that several modules share if one of these cannot be judged backward.
func (j *judge) ignoreTied() {
	for _, m := range j.modules {
		for _, p := range m.Params {
			if len(m.Children) > 0 {
				break
			}
			adds := func(o *reference.Module) bool { return o == m || slices.Contains(o.Children, m.Path) }
			if !slices.ContainsFunc(j.owners[p], adds) {
				delete(j.owners, p)
			}
		}
	}
}

// print adds a line to the report.
func (j *judge) print(line *ModuleLine) {
	line.Verdict = Right
	if len(line.wrong()) > 0 {
		line.Verdict = Wrong
	}
	j.report.Modules = append(j.report.Modules, line)
	j.tell(line)
}

// module judges all calls of one module.
func (j *judge) module(m *reference.Module) (*ModuleLine, error) {
	line := &ModuleLine{Path: m.Path, Kind: string(m.Kind), Layer: m.Layer}
	var wrong *trial
	for _, r := range j.repeats {
		t, err := j.open(m, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if t == nil {
			continue
		}
		line.Precision = formatNames[t.ways[0].Format]
		if t.exact, t.floors, err = t.compute(t.call, t.ways); err != nil {
			return nil, err
		}
		found := t.judgeOutcome(t.exact, t.floors, nil)
		line.add(found)
		bad := slices.ContainsFunc(found, func(c Comparison) bool { return c.Wrong() })
		if t.backward {
			j.accumulate(t)
		}
		if wrong == nil || bad {
			wrong = t
		}
	}
	if wrong == nil {
		return nil, nil
	}
	if err := j.gradients(m, line); err != nil {
		return nil, err
	}
	if len(line.wrong()) > 0 {
		line.Causes = j.explain(wrong, line)
	}
	return line, nil
}

// introduce says what is in the folder.
func (j *judge) introduce() {
	f, r := j.folder, j.report
	r.Read = append(r.Read, fmt.Sprintf("%s, %s: %d layers, hidden %d, %d experts", f.Form, f.Model.Family, f.Model.Layers, f.Model.Hidden, f.Model.Experts))
	if len(j.repeats) > 0 {
		if b, err := f.Batch(j.repeats[0]); err == nil {
			r.Read = append(r.Read, fmt.Sprintf("batch of %d sequences of %d tokens, %s", b.Batch, b.Seq, counted(len(j.repeats), "forward pass")))
		}
	}
	for _, class := range []step.Class{step.Weights, step.Activations, step.Gradients, step.After} {
		if names := f.Names(class); len(names) > 0 {
			r.Read = append(r.Read, fmt.Sprintf("%s: %s", classNames[class], counted(len(names), "tensor")))
		} else {
			r.Missing = append(r.Missing, classNames[class])
		}
	}
	for _, s := range f.Info.Silent {
		if j.byPath[s] != nil { // others are containers, or parts that need no judgment
			r.Missing = append(r.Missing, s+" (its hooks never ran)")
		}
	}
}

var classNames = map[step.Class]string{
	step.Weights: "weights", step.Activations: "activations", step.Gradients: "gradients", step.After: "weights after the step",
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ss") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// extras are tensors that python/step.py records and that say nothing more: the ids again, the
// activation function alone, probabilities, and the choices as the experts got them.
var extras = regexp.MustCompile(`^model\.(embed_tokens\.)?input|\.act_fn\.|^model\.rotary_emb\.|\.self_attn\.(grad_)?output\.1|\.experts\.input\.1`)

// unread lists the names that no module asked for: those that the model does not have, and those
// that could not be compared.
func (j *judge) unread() {
	known := map[string]bool{}
	for _, m := range j.modules {
		for _, p := range append(m.Inputs[:len(m.Inputs):len(m.Inputs)], m.Outputs...) {
			known[p.Name], known[p.Grad] = true, true
		}
		for _, name := range append(m.Params[:len(m.Params):len(m.Params)], m.Buffers...) {
			known[name] = true
		}
	}
	for _, class := range []step.Class{step.Weights, step.Activations, step.Gradients} {
		for _, name := range j.folder.Unread(class) {
			switch plain, _, _ := strings.Cut(name, "@"); {
			case known[name] || known[plain] || extras.MatchString(name):
				j.report.Unread = append(j.report.Unread, classNames[class]+": "+name)
			default:
				j.report.Unknown = append(j.report.Unknown, classNames[class]+": "+name)
			}
		}
	}
}
