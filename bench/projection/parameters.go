package projection

// Parameters: numbers that are neither in a hardware file nor in a kernel table, each with a prior
// for the intervals.

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Parameter is a number of the model with its prior.
type Parameter struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// triangle: anywhere between Low and High; either Value or High; fixed
	Dist   string `json:"dist"`
	Unit   string `json:"unit"`
	Kind   Kind   `json:"kind"`
	Source string `json:"source"`
	About  string `json:"about"`
}

// Stack is the work of a framework on a token in addition to the arithmetic.
type Stack struct {
	As    string `json:"as"` // stack to which the other fields are changes
	About string `json:"about"`
	// one copy of a token per rank, and between nodes per node
	Dedup bool `json:"dedup"`
	// reads and writes of all routed rows outside of products, in a forward pass
	ForwardTouches  float64 `json:"forward_touches"`
	BackwardTouches float64 `json:"backward_touches"` // and in a backward pass
	Hidden          float64 `json:"hidden"`           // hidden share of the exchange
	// share of the GPU that products keep during a hidden exchange
	SMShare float64 `json:"sm_share"`
	// grouped MXFP8 products at the rates that include their casts
	NetSpeedup   bool   `json:"net_speedup"`
	Attention    string `json:"attention"` // kernel
	DocumentMask bool   `json:"document_mask"`
	// share of the row-wise traffic that fusion leaves
	RowwiseShare float64 `json:"rowwise_share"`
	CastShare    float64 `json:"cast_share"` // the same for casts
	// row-wise kernels per layer and pass, as if there were no CUDA graphs
	Launches float64 `json:"launches"`
	Graphs   string  `json:"graphs"` // none, partial or full
	// kernels that the host launches per layer and micro-batch, and per expert of a GPU in addition
	Calls          float64 `json:"calls"`
	CallsPerExpert float64 `json:"calls_per_expert"`
	// share of the kernel tables' rates that products reach; 0: all
	Products  float64 `json:"products"`
	FusedLoss bool    `json:"fused_loss"` // logits are not written
	// share of a layer's time in which the GPU waits because the host waits for it
	Stall float64 `json:"stall"`
	// weights and gradients are also sharded, if there is no pipeline
	FSDP     bool    `json:"fsdp"`
	Copies   bool    `json:"copies"`    // which the framework casts and copies with kernels of its own
	DPHidden float64 `json:"dp_hidden"` // hidden share of the data-parallel traffic
	TPHidden float64 `json:"tp_hidden"` // the same for tensor parallelism
	HeadFP8  bool    `json:"head_fp8"`
	// counts model FLOPs with causal attention and MTP, like Megatron
	Causal bool   `json:"causal"`
	Kind   Kind   `json:"kind"`
	Source string `json:"source"`
}

// attentionKernel holds the rates of one kernel, as shares of the dense BF16 peak, for causal
// FLOPs.
type attentionKernel struct {
	Forward  float64 `json:"forward"`
	Backward float64 `json:"backward"`
	Kind     Kind    `json:"kind"`
	Source   string  `json:"source"`
}

// parameterFile is data/parameters.json.
type parameterFile struct {
	Version    string      `json:"version"`
	About      string      `json:"about"`
	Parameters []Parameter `json:"parameters"`
	// speed-up of grouped MXFP8 products, including casts, by rows per rank
	Net       Curve                      `json:"mxfp8_net"`
	Attention map[string]attentionKernel `json:"attention"`
	Stacks    map[string]json.RawMessage `json:"stacks"`
}

func (f parameterFile) check() error {
	for _, p := range f.Parameters {
		if p.Low > p.Value || p.Value > p.High || p.Unit == "" || p.Source == "" || !slices.Contains(kinds, p.Kind) || !slices.Contains([]string{"triangle", "either", "fixed"}, p.Dist) {
			return fmt.Errorf("parameters.json: %s is malformed: %+v", p.Name, p)
		}
	}
	return f.Net.check()
}

// stacks returns the stacks by name.
func (f parameterFile) stacks() (map[string]Stack, error) {
	all := map[string]Stack{}
	for name := range f.Stacks {
		s, err := f.stack(name, len(f.Stacks))
		if err != nil {
			return nil, err
		}
		if _, ok := f.Attention[s.Attention]; !ok || s.SMShare <= 0 || s.Source == "" || launched[s.Graphs] == 0 {
			return nil, fmt.Errorf("parameters.json: stack %s is malformed: %+v", name, s)
		}
		all[name] = s
	}
	return all, nil
}

// stack returns a stack, which may be changes to another, and that to another, at most depth times.
func (f parameterFile) stack(name string, depth int) (s Stack, err error) {
	text, ok := f.Stacks[name]
	if !ok || depth == 0 {
		return s, fmt.Errorf("parameters.json: stack %s is missing, or refers to itself", name)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("parameters.json: stack %s: %w", name, err)
	}
	if s.As == "" {
		return s, nil
	}
	if s, err = f.stack(s.As, depth-1); err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// The parameters, by their index in the file.
const (
	nicA2ALimit = iota
	nicA2ALoss
	nicDedup
	nvlinkScale
	gemmScale
	groupedScale
	netScale
	groupedSpeedup
	denseSpeedup
	shuffleShare
	touchesScale
	rowwiseShare
	castShare
	attentionScale
	maskDensity
	hiddenScale
	optimizerBytes
	nicCollective
	launchMicros
	nicSpeed
	hostCalls
	nvfp4Speedup
	shardBytes
	scanShare
	naturalStall
	parameters
)

// Settings are values of all parameters.
type Settings [parameters]float64

// Central returns the file's values.
func Central() Settings {
	var s Settings
	for i, p := range Parameters() {
		s[i] = p.Value
	}
	return s
}

// Parameters returns the file's parameters with their priors.
func Parameters() []Parameter {
	list := data().parameters.Parameters
	if len(list) != parameters {
		panic(fmt.Sprintf("projection: parameters.json has %d parameters, the model %d", len(list), parameters))
	}
	return list
}

// kindOf returns the softest kind of several parameters.
func kindOf(list ...int) Kind {
	k := Exact
	for _, i := range list {
		k = softest(k, Parameters()[i].Kind)
	}
	return k
}

// Stacks lists the names of the frameworks.
func Stacks() []string {
	var all []string
	for name := range data().stacks {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
