package step

// Names: other programs' names become Hugging Face's, by the rules of names.txt.

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Repeat is one run of the model's modules: one of several micro-batches, or of several calls.
type Repeat struct{ MicroBatch, Call int }

// key names a tensor of a rank.
type key struct {
	class Class
	name  string
	Repeat
}

func (k key) String() string { return k.name + k.Suffix() }

// Suffix marks the names of a repeat in reports: "@mb2.call1". The first or only one has none.
func (r Repeat) Suffix() string {
	if r == (Repeat{}) {
		return ""
	}
	return fmt.Sprintf("@mb%d.call%d", r.MicroBatch, r.Call)
}

//go:embed names.txt
var nameTable string

type nameRule struct {
	pattern     *regexp.Regexp
	replacement string
	literal     string // all names that match have it: to look for it is fast
}

var nameRules = func() (rules []nameRule) {
	for line := range strings.Lines(nameTable) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[0] == "#" {
			continue
		}
		pattern, isExpression := strings.CutPrefix(fields[0], "~")
		replacement := strings.TrimPrefix(fields[1], "-")
		literal := ""
		if !isExpression {
			parts, top := strings.CutPrefix(pattern, "^")
			before := map[bool]string{true: `(/)`, false: `([./])`}[top]
			pattern = before + regexp.QuoteMeta(parts) + `(\.|$)`
			replacement, literal = "${1}"+replacement+"$2", parts
		}
		rules = append(rules, nameRule{regexp.MustCompile(pattern), replacement, literal})
	}
	return rules
}()

var repeated = regexp.MustCompile(`@(?:mb(\d{1,9}))?\.?(?:call(\d{1,9}))?`)

// canonical returns the key of a tensor that a file has as CLASS/NAME. What a router returns is
// named by its form, because versions of libraries order it differently: integers are indices, a
// row of chosen experts has weights, and one of all experts logits.
func (f *Folder) canonical(full string, e entry) (k key) {
	if at := repeated.FindStringSubmatchIndex(full); at != nil {
		k.MicroBatch, _ = strconv.Atoi(full[max(at[2], 0):max(at[3], 0)])
		k.Call, _ = strconv.Atoi(full[max(at[4], 0):max(at[5], 0)])
		full = full[:at[0]] + full[at[1]:]
	}
	if strings.HasSuffix(full, "activations/target_ids") {
		f.Form = "folder of reference outputs"
		f.Info.LabelsShifted = true
		f.Info.Reduction = "mean"
	}
	for _, rule := range nameRules {
		if strings.Contains(full, rule.literal) {
			full = rule.pattern.ReplaceAllString(full, rule.replacement)
		}
	}
	class, name, _ := strings.Cut(full, "/")
	if f.Model.KVRank > 0 { // TorchTitan calls this norm so in all kinds of attention
		name = strings.Replace(name, ".self_attn.q_norm.", ".self_attn.q_a_layernorm.", 1)
	}
	if f.Model.Streams > 0 {
		name = f.Model.V4Name(name)
		if port, ok := strings.CutPrefix(name, "model.rotary_emb."); ok && k.Call < 2 { // it runs for each kind of layers
			name = "model.rotary_emb." + []string{"main.", "compress."}[k.Call] + port
			k.Call = 0
		}
	}
	k.class, k.name = Class(class), name
	path, port, ok := strings.Cut(k.name, ".mlp.gate.")
	if !ok || len(e.dims) == 0 || !strings.HasPrefix(strings.TrimPrefix(port, "grad_"), "output") {
		return k
	}
	field := map[int]string{f.Model.TopK: "weights", f.Model.Experts: "logits"}[e.dims[len(e.dims)-1]]
	switch {
	case strings.ContainsAny(e.dtype[:1], "IU"):
		field = "indices"
	case field == "":
		return k
	case strings.HasPrefix(port, "grad_"):
		field += ".grad"
	}
	k.name = path + ".mlp.gate." + field
	return k
}

// Read returns a tensor by its name in Hugging Face's form. Experts are named one by one, also if
// the folder has them fused. The batch and the sequence are one dimension of activations:
// [tokens, ...]. Values that are not finite are noted.
func (f *Folder) Read(class Class, name string, r Repeat) (v Value, err error) {
	k, part := f.locate(class, name, r)
	if _, ok := f.first(k); !ok {
		return v, fmt.Errorf("%s: %s is %w", class, k, ErrAbsent)
	}
	tokens := 0
	if (class == Activations || class == batchClass) && k.MicroBatch < len(f.tokens) {
		tokens = f.tokens[k.MicroBatch]
	}
	e, ok := f.whole.tensors[k]
	if !ok {
		e, err = f.join(k, tokens)
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
	f.read[k] = true
	masked := strings.HasSuffix(k.name, ".indexer.scores")
	for i, x := range v.Data {
		if x-x != 0 && !(masked && math.IsInf(x, -1)) {
			f.find(k.name, fmt.Sprintf("%s has %g at element %d: every number should be finite", k, x, i), true)
			break
		}
	}
	want, ok := f.Model.ParamDims(name)
	if ok && class != Activations && !slices.Equal(v.Dims, want) {
		err = fmt.Errorf("%s: %s is %v: config.json asks for %v, and placement.json says how ranks share it", class, name, v.Dims, want)
		f.find(name, err.Error(), len(f.Ranks) == 0)
	}
	return v, err
}

// DType returns the type of a tensor without reading it, and whether the folder has the tensor.
func (f *Folder) DType(class Class, name string, r Repeat) (string, bool) {
	k, _ := f.locate(class, name, r)
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
func (f *Folder) locate(class Class, name string, r Repeat) (key, func(view) (view, error)) {
	k := key{class, name, r}
	if _, ok := f.first(k); ok || class == Activations {
		return k, nil
	}
	if name == "lm_head.weight" && f.Model.Tied {
		k.name = "model.embed_tokens.weight"
	}
	m := oneExpert.FindStringSubmatch(name)
	if m == nil {
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
	for micro := 0; list == nil && micro < f.Info.MicroBatches; micro++ {
		list = append(list, Repeat{MicroBatch: micro})
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
	slices.SortFunc(list, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.MicroBatch, b.MicroBatch), cmp.Compare(a.Call, b.Call), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(list)
}

// Names lists the tensors of a class, or only those that were never read.
func (f *Folder) Names(class Class, unread bool) (names []string) {
	for _, k := range f.keys(class) {
		if !unread || !f.read[k] {
			names = append(names, k.String())
		}
	}
	return names
}
