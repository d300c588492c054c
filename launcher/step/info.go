package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
)

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

	Optimizer    any               `json:"optimizer"`
	Layout       any               `json:"layout"` // of fused experts, a text in any form: "gate_up_proj [E, 2I, D]"
	DTypes       map[string]string `json:"dtypes"` // of parameters, as torch names them
	Silent       []string          `json:"silent"` // modules whose hooks never ran
	NonTensors   []string          `json:"non_tensors"`
	Weights      string            `json:"weights"` // where they are, if not in the folder
	Recompute    bool              `json:"recomputed"`
	Differs      []string          `json:"recomputation_differs"` // modules
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

// The largest JSON files: step.json names every module, placement.json every token.
const mostJSON = 256 << 20

// readInfo reads step.json, if it is there.
func (f *Folder) readInfo(dir string) error {
	f.Info.LossScale, f.Info.MicroBatches = 1, 1
	path := filepath.Join(dir, "step.json")
	text, err := system.ReadFile(path, mostJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keys := map[string]json.RawMessage{}
	if err = errors.Join(err, strictjson.Unmarshal(text, &keys)); err == nil {
		err = strictjson.Unmarshal(text, &f.Info)
	}
	if other, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		f.find(Finding{Module: "step.json", Says: fmt.Sprintf("%s is a %s, which was not read: expected %s", other.Field, other.Value, other.Type)})
	} else if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.Info.MicroBatches = max(f.Info.MicroBatches, 1)
	if f.Info.Format != "step-1" && f.Info.Format != "" || f.Info.MicroBatches > 1<<12 {
		return fmt.Errorf("%s: format is %.60q with %d micro-batches: expected step-1, and at most %d", path, f.Info.Format, f.Info.MicroBatches, 1<<12)
	}
	for i := range reflect.TypeFor[Info]().NumField() {
		delete(keys, reflect.TypeFor[Info]().Field(i).Tag.Get("json"))
	}
	f.Info.Unknown = slices.Sorted(maps.Keys(keys))
	return nil
}
