// Package referee judges one training step of another program. It computes each module again with
// the reference of package reference, on the input, the output gradient and the choices that the
// program recorded, and compares. What rounding alone costs is computed too: the floor. A module is
// wrong if it is farther off than rounding explains. For a wrong one, known mistakes are tried: the
// one under which the reference agrees is its cause.
package referee

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// judge is a judgment under way.
type judge struct {
	folder  *step.Folder
	modules []*reference.Module // the last one is the whole model
	byPath  map[string]*reference.Module
	same    map[string][]string // ports that hold the same tensor as another
	repeats []step.Repeat
	report  *Report
	tell    func(*ModuleLine)
	blind   bool // to products that are quantized, in a way that the folder does not say
	brief   bool // do not list mistakes that rounding hides

	weightsOf *reference.Module
	weights   map[string]reference.Tensor
	owners    map[string][]*reference.Module // that are judged backward, by parameter
	sums      map[string]*gradientSum
}

// Judge reads a folder and judges every module of it. tell is called for every module in order.
// With all, every element of the products of a GPU is compared, and otherwise a sample.
func Judge(path string, all bool, tell func(*ModuleLine)) (*Report, error) {
	folder, err := step.Open(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	if err := folder.Usable(true); err != nil {
		return nil, err
	}
	j := newJudge(folder)
	j.tell = tell
	return j.all(all), nil
}

// all judges every module.
func (j *judge) all(products bool) *Report {
	if n := j.weighs(j.modules[len(j.modules)-1]); n <= mostWeights { // of a small heap, garbage is no matter
		defer debug.SetGCPercent(debug.SetGCPercent(min(max(100*mostWeights/max(n, 1), 400), 1600)))
	}
	j.introduce()
	j.checkRecipe()
	var chosen []*reference.Module
	for _, m := range j.modules {
		if j.worth(m) && !(j.blind && j.hasQuantized(m)) {
			chosen = append(chosen, m)
		}
	}
	j.own(chosen)
	for _, m := range chosen {
		line, err := j.module(m)
		if err != nil { // this module cannot be judged, others can
			j.report.doubt(err.Error())
		} else if line != nil && len(line.Comparisons) > 0 {
			j.print(line)
		}
	}
	if err := j.endToEnd(); err != nil {
		j.report.doubt(err.Error())
	}
	j.products(products)
	j.settle()
	j.conclude()
	return j.report
}

func newJudge(folder *step.Folder) *judge {
	j := &judge{
		folder: folder, modules: folder.Model.Modules(), byPath: map[string]*reference.Module{}, same: map[string][]string{}, repeats: folder.Repeats(),
		report: &Report{Folder: folder.Path, Strains: map[string]float64{}}, tell: func(*ModuleLine) {},
		owners: map[string][]*reference.Module{}, sums: map[string]*gradientSum{},
	}
	for _, m := range j.modules {
		j.byPath[m.Path] = m
		if m.Kind == reference.Handover && len(m.Inputs) == 1 && m.Inputs[0].Hi == 0 && m.Outputs[0].Hi == 0 {
			from, to := m.Inputs[0].Name, m.Outputs[0].Name
			j.same[from], j.same[to] = append(j.same[from], to), append(j.same[to], from)
		}
	}
	return j
}

// find returns the name under which the folder has a port: its own, or that of a port that holds
// the same tensor, such as the output of the layer before. It is empty if the folder has none.
func (j *judge) find(name string, r step.Repeat) string {
	seen := []string{name}
	for i := 0; i < len(seen); i++ {
		// V2's rotary tables are complex numbers, which have no port.
		if dtype, ok := j.folder.DType(step.Activations, seen[i], r); ok && seen[i] != "" && dtype != "C64" {
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
	return name != "" && slices.ContainsFunc(j.repeats, func(r step.Repeat) bool { return j.find(name, r) != "" })
}

// present reports whether a module can be judged forward, and backward.
func (j *judge) present(m *reference.Module) (forward, backward bool) {
	for _, p := range m.Inputs {
		if !j.has(p.Name) {
			return false, false
		}
	}
	loss := isLoss(m)
	backward = !loss || j.has(m.Inputs[len(m.Inputs)-1].Grad)
	forward = m.ChoosesKeys() && j.has(m.Choice()+".indices")
	for _, p := range m.Outputs {
		forward = forward || j.has(p.Name)
		backward = backward && (loss || j.has(p.Grad))
	}
	return forward, backward
}

func isLoss(m *reference.Module) bool {
	return m.Kind == reference.Head || m.Kind == reference.Loss || m.Kind == reference.IndexLoss
}

// worth reports whether a module is judged: it is there, and finer ones do not say the same.
// Losses of router logits are part of the judgment of their router.
func (j *judge) worth(m *reference.Module) bool {
	forward, backward := j.present(m)
	if m.Kind == reference.Balance || m.Kind == reference.Model {
		return false
	}
	if m.Kind == reference.IndexLoss && j.indexLoss().Coefficient == 0 {
		if backward {
			j.report.doubt("the indexers have gradients, but step.json has no auxiliary loss index_kl with its coefficient")
		}
		return false
	}
	coveredForward, coveredBackward := j.covered(m)
	return forward && !coveredForward || backward && !coveredBackward
}

// covered reports whether finer modules inside one are judged, all of them.
func (j *judge) covered(m *reference.Module) (forward, backward bool) {
	forward, backward = len(m.Children) > 0, len(m.Children) > 0
	for i := 0; i < len(m.Children); i++ {
		child := m.Children[i]
		if child.Kind == reference.Balance || child.OfGradients {
			continue
		}
		f, b := j.present(child)
		if len(child.Children) > 0 {
			coveredForward, coveredBackward := j.covered(child)
			f, b = f || coveredForward, b || coveredBackward
			i += len(child.Children)
		}
		// Nothing goes backward through an indexer to what is outside.
		forward = forward && f
		backward = backward && (b || child.Kind.Glue() || strings.Contains(child.Path, ".indexer"))
	}
	return forward, backward
}

// own says which modules add to the gradient of each parameter: the finest that are judged. It
// drops parameters that several modules share if one of these cannot be judged backward.
func (j *judge) own(chosen []*reference.Module) {
	for _, m := range slices.Backward(chosen) { // finer ones first
		_, backward := j.present(m)
		for _, p := range m.Params {
			finer := func(o *reference.Module) bool { return slices.Contains(m.Children, o) }
			if backward && !slices.ContainsFunc(j.owners[p], finer) {
				j.owners[p] = append(j.owners[p], m)
			}
		}
	}
	for _, m := range j.modules {
		for _, p := range m.Params {
			adds := func(o *reference.Module) bool { return o == m || slices.Contains(o.Children, m) }
			if len(m.Children) == 0 && !slices.ContainsFunc(j.owners[p], adds) {
				delete(j.owners, p)
			}
		}
	}
}

// print adds a line to the report.
func (j *judge) print(line *ModuleLine) {
	line.setVerdict()
	j.report.Modules = append(j.report.Modules, line)
	j.tell(line)
}

// module judges all calls of one module; nil: there is too little of it.
func (j *judge) module(m *reference.Module) (*ModuleLine, error) {
	line := &ModuleLine{Path: m.Path, Kind: string(m.Kind), Layer: m.Layer}
	var worst *trial
	for _, r := range j.repeats {
		t, err := j.open(m, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if t == nil {
			continue
		}
		if line.Precision = formatNames[t.ways[0].Format]; j.hasQuantized(m) {
			line.Precision += " with " + j.folder.Info.FP8 + " products"
		}
		if t.exact, t.floors, err = t.compute(t.call, t.ways); err != nil {
			return nil, err
		}
		found := t.compareAll(t.exact, t.floors, nil)
		line.add(found)
		if t.backward {
			j.accumulate(t)
		}
		if worst == nil || slices.ContainsFunc(found, func(c Comparison) bool { return c.Wrong() }) {
			worst = t
		}
	}
	if worst == nil {
		return nil, nil
	}
	if err := j.gradients(m, line); err != nil {
		return nil, err
	}
	switch {
	case len(line.wrong()) > 0:
		line.Causes = j.explain(worst, line)
	case j.behindTies(worst, line):
	case !m.Kind.Glue() && !j.brief:
		line.Hidden = worst.hidden()
		j.report.Hidden += len(line.Hidden)
	}
	return line, nil
}

// model returns a trial of the whole model, from the batch, the weights and the recorded choices.
func (j *judge) model(r step.Repeat, lossGradient float64) (*trial, error) {
	t := &trial{judge: j, module: j.modules[len(j.modules)-1], repeat: r, backward: true, held: map[string]*step.Value{}}
	var err error
	t.ways, t.least = j.roundings(j.byPath["model.embed_tokens"], r)
	t.call, err = t.newCall()
	if t.call.Losses["loss"] = lossGradient; t.call.Warmup { // only the indexers train
		delete(t.call.Losses, "loss")
	}
	return t, err
}

// chainBound is wholeBound for gradients that are compared end to end: their rounding is that of
// all layers, and one flipped choice changes more than rounding does.
const chainBound = 4

// endToEnd judges the gradients that no module could, by passes through the whole model.
func (j *judge) endToEnd() error {
	var left []string
	model := j.modules[len(j.modules)-1]
	for _, name := range model.Params {
		_, ok := j.folder.DType(step.Gradients, name, step.Repeat{})
		if s := j.sums[name]; ok && (s == nil || !s.finished) && !slices.Contains(left, name) {
			left = append(left, name)
		}
	}
	if len(left) == 0 || j.blind || j.incomplete() || len(j.routerLosses()) > 0 {
		return nil
	}
	line := &ModuleLine{Path: "gradients end to end", Kind: "chain", Layer: -1}
	for _, name := range left {
		j.owners[name], j.sums[name] = []*reference.Module{model}, nil
	}
	for _, r := range j.repeats {
		t, err := j.model(r, j.folder.Info.LossScale/float64(len(j.repeats)))
		if err == nil {
			t.exact, t.floors, err = t.compute(t.call, t.ways)
		}
		if err != nil {
			return err
		}
		line.Precision = formatNames[t.ways[0].Format]
		j.accumulate(t)
	}
	slices.Sort(left)
	for _, name := range left {
		s := j.sums[name]
		c, err := j.gradient(name, s.total(), s.floors)
		if err != nil {
			return err
		}
		c.Strain *= wholeBound / chainBound
		c.Resolution *= chainBound / wholeBound
		c.Scaled = c.Scaled && c.Wrong()
		line.Comparisons = append(line.Comparisons, *c)
	}
	j.print(line)
	return nil
}

// Write runs the reference's whole model from the weights and the batch of a folder, and writes its
// own activations and gradients to another, under the names of a step folder.
func Write(from, to string) error {
	folder, err := step.Open(from)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Usable(false); err != nil {
		return err
	}
	j := newJudge(folder)
	if len(j.repeats) > 1 {
		return fmt.Errorf("it holds %d forward passes: the reference writes those of a step of one", len(j.repeats))
	}
	t, err := j.model(j.repeats[0], folder.Info.LossScale)
	if err != nil {
		return err
	}
	results, err := t.run(t.call)
	if err != nil {
		return err
	}
	return t.write(results, to)
}

// write writes what a run of the whole model computed.
func (t *trial) write(results outcome, to string) error {
	model := t.judge.folder.Model
	trained := t.judge.indexLoss().Coefficient != 0
	files := map[string][]safetensors.Tensor{}
	for _, name := range slices.Sorted(maps.Keys(results)) {
		v, file := results[name], "activations.safetensors"
		if replayed, ok := t.call.Given(name); ok && strings.HasSuffix(name, ".indices") {
			v = replayed
		}
		if dims, ok := model.ParamDims(name); ok {
			v.Dims, file = dims, "gradients.safetensors"
		}
		gradient := file[0] == 'g' || strings.Contains(name, "grad")
		ofIndexer := strings.Contains(name, ".indexer.")
		if gradient && (ofIndexer && !trained || !ofIndexer && t.call.Warmup) { // nothing trains it
			continue
		}
		if len(v.Data) > 0 && !strings.HasSuffix(name, "]") {
			files[file] = append(files[file], encoded(name, v, t.call.Rounding.Format))
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for file, tensors := range files {
		if err := safetensors.Write(filepath.Join(to, file), tensors, nil); err != nil {
			return err
		}
	}
	return nil
}

// encoded returns a tensor as integers if it is a choice, or in BF16 if the run rounds to it, or in
// FP32.
func encoded(name string, v reference.Tensor, format reference.Format) safetensors.Tensor {
	t := safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: v.Dims}
	short := format == reference.BF16 && format.Holds(v.Data)
	for _, x := range v.Data {
		switch bits := math.Float32bits(float32(x)); {
		case strings.HasSuffix(name, ".indices"):
			t.DType = safetensors.I32
			t.Data = binary.LittleEndian.AppendUint32(t.Data, uint32(int32(x)))
		case short:
			t.DType = safetensors.BF16
			t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(bits>>16))
		default:
			t.Data = binary.LittleEndian.AppendUint32(t.Data, bits)
		}
	}
	return t
}
