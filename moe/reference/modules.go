package reference

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// Port is a tensor that a module reads or makes, and its gradient. The names are those of a step
// folder: model.layers.3.self_attn.input and model.layers.3.self_attn.grad_input.
type Port struct {
	Name, Grad string
	// The port is columns [Lo, Hi) of that tensor, or all if Hi is 0.
	Lo, Hi int
}

// Module is a part of a model with names for all that enters and leaves it.
type Module struct {
	Path            string
	Kind            Kind
	Layer           int // -1: none
	Inputs, Outputs []Port
	Params          []string  // as Hugging Face names them; of experts one by one
	Buffers         []string  // which have no gradient
	Children        []*Module // all modules inside it
	OfGradients     bool      // its ports are gradients

	config *Config
	widths []int // of the inputs' rows; the last one holds for all further inputs, none: any
	sums   bool  // a reader of the tensor is a sum
}

// ofEntries reports whether a port has a row for each entry of compressed attention.
func (m *Module) ofEntries(p Port) bool {
	return strings.HasSuffix(p.Name, ".compressor.output") || strings.HasSuffix(p.Name, ".scorer.input.1") ||
		strings.HasSuffix(p.Name, ".compressor.grad_output")
}

var gradientNames = regexp.MustCompile(`^(.*\.)((?:in|out)put(?:\.[12])?)$`)

// port returns the port of a name, which may have columns behind it.
func (l *list) port(name string) (p Port) {
	p.Name, name, _ = strings.Cut(strings.TrimSuffix(name, "]"), "[")
	if lo, hi, ok := strings.Cut(name, ":"); ok {
		p.Lo, p.Hi = l.numbers[lo], l.numbers[hi]
	}
	p.Grad = p.Name + ".grad"
	if m := gradientNames.FindStringSubmatch(p.Name); m != nil {
		p.Grad = m[1] + "grad_" + m[2]
	}
	return p
}

func (l *list) ports(names string) (all []Port) {
	for name := range strings.SplitSeq(names, ",") {
		all = append(all, l.port(name))
	}
	return all
}

// Gradient returns the port of p's gradient.
func (p Port) Gradient() Port { return Port{Name: p.Grad, Lo: p.Lo, Hi: p.Hi} }

// Label names the port with its columns. Results of a module are named so.
func (p Port) Label() string {
	if p.Hi == 0 {
		return p.Name
	}
	return fmt.Sprintf("%s[%d:%d]", p.Name, p.Lo, p.Hi)
}

// list collects the modules of a model.
type list struct {
	*Config
	modules []*Module
	open    []*Module // those that the next module is inside of, and that before it
	depth   int       // of the next module
	layer   int
	sums    map[string]*Module // of the gradients of a tensor's readers
	numbers map[string]int     // of the layer, by their names in modules.txt
}

//go:embed modules.txt
var moduleTable string

// Modules returns the modules in the order of the forward pass, each before those inside it. The
// last one is the whole model. It also notes the dimensions of parameters: calls must not run at
// the same time.
func (c *Config) Modules() []*Module {
	l := &list{Config: c, layer: -1, sums: map[string]*Module{}}
	model := l.add(Model, "model")
	model.Outputs, l.depth = []Port{{Name: "loss"}}, 1
	streams := ""
	if c.Streams > 0 {
		streams = "streams "
	}
	l.section(streams+"first", "", "")
	before, logits := "model.embed_tokens", []Port{}
	for l.layer = range c.Layers + c.MTPLayers {
		path := layerPath(l.layer)
		switch {
		case l.layer >= c.Layers:
			l.section(streams+"further", path, before)
		case l.layer > 0 || streams == "":
			l.link(l.port(before+".output"), l.port(path+".input"))
		}
		if l.section(streams+"layer", path, before); c.Sparse(l.layer) && l.layer < c.Layers && streams == "" {
			logits = append(logits, l.port(path+".mlp.gate.logits"))
		}
		if before, l.depth = path, 1; l.layer == c.Layers-1 {
			l.link(l.port(path+".output"), l.port(map[bool]string{true: "model.norm.input", false: "model.hc_head.input"}[streams == ""]))
		}
		if l.layer >= c.Layers {
			l.section(streams+"after", path, before)
		}
	}
	for l.layer = range c.Layers + c.MTPLayers {
		l.section("indexer", layerPath(l.layer), "")
	}
	l.layer = -1
	if len(logits) > 0 { // Qwen's loss counts the choices of all layers together
		l.section("balance", "", "")
		l.modules[len(l.modules)-1].Inputs = logits
	}
	if l.section(streams+"last", "", ""); c.Tied {
		delete(c.params, "lm_head.weight")
	}
	return append(l.modules[1:], model)
}

func layerPath(layer int) string { return fmt.Sprintf("model.layers.%d", layer) }

// section appends the modules of a part of the table. layer stands for $ and before for @.
func (l *list) section(name, layer, before string) {
	_, text, _ := strings.Cut(moduleTable, "["+name+"]\n")
	text, _, _ = strings.Cut(text, "\n\n")
	l.numbers = l.named(l.layer)
	for line := range strings.SplitSeq(strings.NewReplacer("$", layer, "@", before).Replace(strings.TrimSpace(text)), "\n") {
		line, when, _ := strings.Cut(line, " ?")
		if when == "" || l.numbers[when] != 0 {
			l.depth = 1 + len(line) - len(strings.TrimLeft(line, " "))
			l.line(line)
		}
	}
}

// line appends the module of a line of the table.
func (l *list) line(line string) {
	left, right, _ := strings.Cut(line, " > ")
	from, to := strings.Fields(left), strings.Fields(right)
	kind, path, source := Kind(from[0]), from[1], from[len(from)-1]
	switch {
	case kind == "link":
		l.link(l.port(path), l.port(to[0]))
		return
	case kind == "read":
		l.handover(l.port(path), l.port(to[0]))
		return
	case kind == "mixback":
		l.glue(Mix, path, l.port(to[0]), l.ports(source)...).OfGradients = true
		l.modules[len(l.modules)-1].Outputs = l.ports(to[0])
		return
	case kind == "sum":
		l.glue(Residual, path, l.port(to[0]), l.ports(source)...)
		for _, p := range l.ports(source) {
			l.reader(p, l.port(to[0]), true)
		}
		return
	case len(from) == 3 && source != "=" && source != "-":
		l.link(l.port(source), l.port(path+".input"))
	}
	m := l.add(kind, path)
	m.Inputs = []Port{l.port(path + ".input")}
	m.Outputs = []Port{l.port(path + ".output")}
	if from[2] == "=" {
		m.Inputs = nil
	}
	if len(from) == 4 {
		m.Inputs = l.ports(source)
	}
	if to[0] != "-" {
		m.Outputs = l.ports(to[0])
	}
	for i := range m.Inputs { // the choice has no gradient, and the target of a loss is a constant
		if kind == Index || kind == Indexer || kind == IndexLoss && i < 3 {
			m.Inputs[i].Grad, m.Outputs[0].Grad = "", ""
		}
	}
	if kind.loss() || kind == Rotary {
		m.Outputs[0].Grad = "" // a loss takes its gradient from the call
	}
	if m.widths = []int{l.Hidden}; len(to) > 1 {
		l.weigh(m, strings.Split(to[1], ","))
	}
}

// weigh gives a module its weights and the widths of its inputs, from names of numbers.
func (l *list) weigh(m *Module, names []string) {
	var dims []int
	for _, name := range names {
		dims = append(dims, l.numbers[name])
	}
	switch m.widths = dims; m.Kind {
	case Embedding, Norm:
		l.parameter(m, "weight", dims...)
	case Linear:
		l.parameter(m, "weight", dims[:2]...)
		if m.widths = dims[1:2]; len(dims) > 2 && dims[2] != 0 {
			l.parameter(m, "bias", dims[0])
		}
	case Grouped:
		l.parameter(m, "weight", dims[:2]...)
		m.widths = dims[2:]
	case Hyper:
		l.parameter(m, "fn", dims...)
		l.parameter(m, "base", dims[0])
		l.parameter(m, "scale", 3)
		m.widths = dims[1:]
	case HyperHead:
		l.parameter(m, "hc_fn", dims...)
		l.parameter(m, "hc_base", dims[0])
		l.parameter(m, "hc_scale", 1)
		m.widths = dims[1:]
	case Pool:
		l.parameter(m, "position_bias", dims[:2]...)
		l.parameter(m, "kv_norm.weight", dims[2])
		m.widths = dims[1:2]
	case Core:
		if l.Streams > 0 {
			l.parameter(m, "sinks", l.Heads)
		}
	case LayerNorm:
		l.parameter(m, "weight", dims...)
		l.parameter(m, "bias", dims...)
	case Router:
		l.parameter(m, "weight", dims...)
		if m.widths = dims[1:]; l.Hash(l.layer) {
			m.Buffers = []string{m.Path + ".tid2eid"}
			l.params[m.Buffers[0]] = []int{l.Vocab, l.TopK}
		} else if l.SelectionBias {
			m.Buffers = []string{m.Path + ".e_score_correction_bias"}
			l.params[m.Buffers[0]] = dims[:1]
		}
	case Experts:
		m.Inputs = append(m.Inputs, l.port(m.Path+".input.2"))
		for e := range l.Config.Experts {
			l.parameter(m, fmt.Sprintf("%d.gate_proj.weight", e), l.ExpertInter, l.Hidden)
			l.parameter(m, fmt.Sprintf("%d.up_proj.weight", e), l.ExpertInter, l.Hidden)
			l.parameter(m, fmt.Sprintf("%d.down_proj.weight", e), l.Hidden, l.ExpertInter)
		}
	}
}

// parameter adds a parameter to a module, and to those that it is inside of.
func (l *list) parameter(m *Module, suffix string, dims ...int) {
	name := strings.TrimSuffix(strings.TrimSuffix(m.Path, ".pool"), ".core") + "." + suffix
	if m.Kind == Embedding || l.Tied && name == "lm_head.weight" {
		name = "model.embed_tokens.weight"
	} else if l.Streams > 0 && strings.HasSuffix(name, ".head.weight") {
		name = "lm_head.weight"
	}
	for _, outer := range l.open {
		outer.Params = append(outer.Params, name)
	}
	l.params[name] = dims
}

// add appends a module to the list and to those that it is inside of.
func (l *list) add(kind Kind, path string) *Module {
	m := &Module{Path: path, Kind: kind, Layer: l.layer, config: l.Config}
	l.modules = append(l.modules, m)
	l.open = l.open[:min(l.depth, len(l.open))]
	for _, outer := range l.open {
		outer.Children = append(outer.Children, m)
	}
	l.open = append(l.open, m)
	return m
}

// glue appends a sum of ports.
func (l *list) glue(kind Kind, path string, to Port, from ...Port) *Module {
	m := l.add(kind, path)
	m.Inputs, m.Outputs = from, []Port{to}
	return m
}

// link says that a tensor enters a module.
func (l *list) link(from, to Port) {
	l.handover(from, to)
	l.reader(from, to, false)
}

// handover says the same of a tensor that is detached: its reader sends no gradient.
func (l *list) handover(from, to Port) {
	l.glue(Handover, strings.TrimSuffix(to.Label(), ".input")+".handover", to, from)
}

// reader adds to the gradient of a tensor what one reader sends, which may be a sum of several
// tensors. Autograd adds the last one's first.
func (l *list) reader(of, by Port, sums bool) {
	m := l.sums[of.Label()]
	if m == nil {
		m = l.glue(Handover, of.Label()+".grad", of.Gradient())
		m.OfGradients = true
		l.sums[of.Label()] = m
	}
	m.Inputs = append([]Port{by.Gradient()}, m.Inputs...)
	if m.sums = m.sums || sums; m.sums && len(m.Inputs) > 1 {
		m.Kind = Residual
	}
}

// named returns the numbers of modules.txt for a layer. A condition that holds is 1.
func (c *Config) named(layer int) map[string]int {
	latent := c.KVRank > 0
	queries := c.QRank
	sparse := layer >= 0 && c.Sparse(layer)
	if !latent {
		queries = 0
	}
	numbers := map[string]int{
		"vocab": c.Vocab, "hidden": c.Hidden, "twice_hidden": 2 * c.Hidden, "head": c.HeadDim, "queries": c.Heads * c.HeadDim,
		"keys": c.KVHeads * c.HeadDim, "rope": c.RopeDim, "values": c.Heads * c.ValueDim, "query_rank": queries, "latent": c.KVRank,
		"latent_and_rope": c.KVRank + c.RopeDim, "keys_and_values": c.Heads * (c.NopeDim + c.ValueDim), "inter": c.DenseInter,
		"shared_inter": c.SharedExperts * c.ExpertInter, "experts": c.Experts, "top_k": c.TopK,
		"index_queries": c.IndexHeads * c.IndexDim, "index_heads": c.IndexHeads, "index_dim": c.IndexDim,
	}
	for name, holds := range map[string]bool{
		"attention_bias": c.AttentionBias, "output_bias": c.OutputBias, "grouped_bias": c.AttentionBias && !latent, "mlp_bias": c.MLPBias,
		"plain_queries": queries == 0, "latent_only": latent && queries == 0, "grouped": !latent, "qk_norm": !latent && c.QKNorm,
		"grouped_without_norm": !latent && !c.QKNorm, "sparse": sparse, "dense": !sparse,
		"indexer": c.IndexTopK > 0 && !c.Shared(layer) && c.Streams == 0, "shared": sparse && c.SharedExperts > 0, "unshared": sparse && c.SharedExperts == 0,
	} {
		if holds {
			numbers[name] = 1
		}
	}
	if c.Streams > 0 {
		c.nameStreams(numbers, layer)
	}
	return numbers
}

// nameStreams adds the numbers of DeepSeek-V4.
func (c *Config) nameStreams(numbers map[string]int, layer int) {
	n, overlap := c.Streams, 1
	if c.Attention(layer) == sparseAttention {
		overlap = 2
		numbers["sparse_attention"] = 1
	}
	for name, value := range map[string]int{
		"streams": n, "mixes": (n + 2) * n, "streams_hidden": n * c.Hidden, "query_rank": c.QRank, "ratio": c.Ratio(layer),
		"compressed": overlap * c.HeadDim, "index_compressed": overlap * c.IndexDim, "post": n, "comb": n * n,
		"output_ranks": c.OutputGroups * c.OutputRank, "group": c.Heads / c.OutputGroups * c.HeadDim,
	} {
		numbers[name] = value
	}
	if layer >= 0 && !c.Hash(layer) {
		numbers["scored"] = 1
	}
	if c.Ratio(layer) == 0 {
		numbers["uncompressed"] = 1
	}
}
