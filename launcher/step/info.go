package step

import "encoding/json"

// Info is step.json: what the program says of the step. The zero value of a field is "not stated",
// except for counts and the loss scale, which are 1.
type Info struct {
	Format    string `json:"format"`
	Framework string `json:"framework"`
	Torch     string `json:"torch"`
	Device    string `json:"device"`
	Autocast  string `json:"autocast"` // "bfloat16"
	Matmul    string `json:"float32_matmul_precision"`
	Attention string `json:"attention"` // "eager", "sdpa"
	Compile   bool   `json:"compile"`
	FP8       any    `json:"fp8"` // nil: none

	Loss          string      `json:"loss"`
	LossValue     *float64    `json:"loss_value"`
	Reduction     string      `json:"reduction"` // "mean", "sum" or "sequence"
	LossScale     float64     `json:"loss_scale"`
	MicroBatches  int         `json:"micro_batches"`
	Ranks         int         `json:"ranks"`
	LabelsShifted bool        `json:"labels_shifted"`
	Auxiliary     []Auxiliary `json:"auxiliary"`

	Optimizer    map[string]any    `json:"optimizer"`
	Layout       map[string]string `json:"layout"` // of fused experts: "gate_up_proj [E, 2I, D]"
	DTypes       map[string]string `json:"dtypes"` // of parameters, as torch names them
	Silent       []string          `json:"silent"` // modules whose hooks never ran
	NonTensors   []string          `json:"non_tensors"`
	Weights      string            `json:"weights"` // where they are, if not in the folder
	Recompute    bool              `json:"recompute"`
	GradDType    string            `json:"grad_dtype"`
	Accumulation string            `json:"gradient_accumulation"` // its dtype: "float32"

	Unknown []string `json:"-"` // keys of step.json that this program does not know
	// SummedInputs says that grad_input is the gradient of all consumers of that tensor, not of the
	// module alone, as sglang's dumper writes it.
	SummedInputs bool `json:"-"`
}

// Auxiliary is an auxiliary loss of the routers.
type Auxiliary struct {
	Kind        string  `json:"kind"` // "load_balancing", "sequence" or "z"
	Coefficient float64 `json:"coefficient"`
	Padding     bool    `json:"padding"` // padding counts
}

var _ = json.Valid
