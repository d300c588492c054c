// Package record is the record that a run writes while it trains: one JSON object per line, whose
// only key names its kind.
//
//	{"step":{"step":1,"loss":5.98,...}}
//	{"eval":{"step":0,"loss":5.97,...}}
//
// Sums over ranks are complete; a line describes the whole run.
package record

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"spmoe/collective/mesh"
)

// File is the name of a record in the folder of its run.
const File = "metrics.jsonl"

// Start says where a run began or was resumed. Fields that old records lack are 0.
type Start struct {
	Step    int     `json:"step"`           // steps made before
	Time    float64 `json:"time,omitempty"` // seconds since 1970
	CPU     string  `json:"cpu"`
	Tier    string  `json:"tier"` // instruction tier
	Cores   int     `json:"cores"`
	Version string  `json:"version"` // of the program
	Ranks   int     `json:"ranks,omitempty"`

	Mesh *mesh.Layout `json:"mesh,omitempty"` // how the ranks divide the model

	Tokens        int64   `json:"tokens,omitempty"`          // per step
	BytesPerToken float64 `json:"bytes_per_token,omitempty"` // of the training text
	FLOPs         float64 `json:"flops,omitempty"`           // of the model, per token
	Peak          float64 `json:"peak,omitempty"`            // of the machine, FLOP/s, in the run's precision

	NewData string `json:"new_data,omitempty"` // describes the change if other data begins
}

// Eval is the validation loss after a step.
type Eval struct {
	Step        int    `json:"step"`
	Loss        Number `json:"loss"`                    // nats/token
	BitsPerByte Number `json:"bits_per_byte,omitempty"` // the same as Loss; 0: unknown
	Sequences   int    `json:"sequences"`
}

// Load holds the number of tokens of a step per expert of a layer.
type Load struct {
	Step   int     `json:"step"`
	Layer  int     `json:"layer"`
	Tokens []int64 `json:"tokens"` // [experts]
}

// Kinds of quantized tensors.
const (
	Input    = "input"
	Weight   = "weight"
	Gradient = "gradient" // of a layer's output
)

// Quantized is the quantization error of one operand of a linear layer, or of a layer's experts, in
// a step: of all inputs and gradients of its passes, and of the weights after it (none if it was
// skipped). Of several layers with the same input, the first has it.
type Quantized struct {
	Step      int    `json:"step"`
	Layer     int    `json:"layer"`
	Linear    string `json:"linear"` // "self_attn.o_proj", "experts.down_proj"
	Tensor    string `json:"tensor"` // Input, Weight or Gradient
	Format    string `json:"format"`
	Elements  int64  `json:"elements"`
	Signal    Number `json:"signal"`    // sum of squares of the values
	Noise     Number `json:"noise"`     // sum of squares of the quantization error
	Saturated int64  `json:"saturated"` // values beyond the range of their block's scale
	Flushed   int64  `json:"flushed"`   // values that became zero
}

// SQNR returns the ratio of signal to quantization noise in dB: 20·log10(‖x‖/‖x-q(x)‖). It is +Inf
// without noise.
func (q Quantized) SQNR() float64 { return 10 * math.Log10(float64(q.Signal)/float64(q.Noise)) }

// Times is the time of a warm step by kind of work, averaged over steps and ranks.
type Times struct {
	Step     int                `json:"step"` // the last of them; 0 in old records
	Steps    int                `json:"steps"`
	Seconds  float64            `json:"seconds"`  // per step
	Families map[string]float64 `json:"families"` // seconds per step, by kind of work
}

// Phases is the time of the steps since the last Phases by kind of work, averaged over those steps
// and over ranks. It excludes the first step of a run and the first one after a resumption.
type Phases struct {
	Step     int                `json:"step"`  // the last of them
	Steps    int                `json:"steps"` // number of steps
	Seconds  float64            `json:"seconds"`
	Families map[string]float64 `json:"families"`
}

// Sample is text that the model wrote after a step.
type Sample struct {
	Step   int    `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

// Done ends the record of a run that has made its last step.
type Done struct {
	Step    int    `json:"step"`
	HeldOut Number `json:"held_out_loss"`
	Skipped int    `json:"skipped"` // steps that changed no weight

	Gzip Number `json:"gzip_bits_per_byte,omitempty"` // of validation text; of earlier versions

	// Passes are the validation losses of the parts of the text that HeldOut is the loss of. Runs
	// of one configuration on the same number of ranks have the same parts.
	Passes []Number `json:"held_out_passes,omitempty"`
}

// Log is the whole record of a run.
type Log struct {
	Starts    []Start // several if the run was resumed
	Steps     []Step
	Evals     []Eval
	Loads     []Load
	Quantized []Quantized
	Phases    []Phases
	Samples   []Sample
	Times     *Times // the last one; nil: none
	Done      *Done  // nil: the run has not ended
}

// Timeless returns the part of a log that is the same for every run of one configuration:
// everything except times, the machine and its ranks.
func (log Log) Timeless() Log {
	log.Starts, log.Phases, log.Times, log.Steps = nil, nil, nil, slices.Clone(log.Steps)
	for i := range log.Steps {
		log.Steps[i].Seconds, log.Steps[i].Time, log.Steps[i].Memory = 0, 0, 0
	}
	return log
}

// recentSteps is the number of steps whose mean time predicts the remaining time.
const recentSteps = 20

// Left returns the time that a run of some steps has left, without evaluations and checkpoints; 0
// if that is unknown.
func (log Log) Left(steps int) time.Duration {
	recent := log.Steps[max(0, len(log.Steps)-recentSteps):]
	if len(recent) == 0 {
		return 0
	}
	sum := 0.0
	for _, s := range recent {
		sum += s.Seconds
	}
	left := sum / float64(len(recent)) * float64(steps-recent[len(recent)-1].Step)
	return time.Duration(min(max(left, 0), maxLeft) * float64(time.Second))
}

// maxLeft is the longest predicted time in seconds.
const maxLeft = 1e9

// Number is a float64 whose NaN and infinities, which JSON lacks, are written as null and read as
// NaN. A run with such a loss must still be able to write.
type Number float64

// MarshalJSON implements [json.Marshaler].
func (n Number) MarshalJSON() ([]byte, error) {
	if x := float64(n); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *Number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(data, (*float64)(n))
}
