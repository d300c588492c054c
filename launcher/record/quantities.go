package record

// The quantities of a step. Console, JSON lines, TensorBoard and pages all read their declarations
// here.

import (
	"math"
	"slices"
	"time"
)

// Step is one optimizer step. Fields with a JSON key are recorded; the others are in the log only.
// With restores some of them for a step that was read.
type Step struct {
	Step      int     `json:"step"` // from 1
	Loss      Number  `json:"loss"` // mean cross-entropy of the global batch, nats/token
	GradNorm  Number  `json:"grad_norm"`
	LR        float64 `json:"lr"`
	Imbalance float64 `json:"imbalance"`         // most loaded expert over the mean, averaged over layers
	Seconds   float64 `json:"seconds"`           // of this step
	Skipped   bool    `json:"skipped,omitempty"` // its gradients were unusable, and no weight was changed
	MTPLoss   Number  `json:"mtp_loss,omitempty"`
	Balance   Number  `json:"balance_loss,omitempty"` // the sequence-wise balance loss
	IndexLoss Number  `json:"index_loss,omitempty"`   // of the indexers: the sum over layers of the mean divergence, nats
	Dropped   int64   `json:"dropped,omitempty"`      // choices beyond ep_capacity, of all layers and ranks
	Time      float64 `json:"time,omitempty"`         // seconds since 1970, at its end
	Memory    int64   `json:"memory,omitempty"`       // resident bytes of the process that has rank 0

	Steps        int           `json:"-"` // of the run
	TokensPerSec float64       `json:"-"` // in the log: mean since the previous line
	FLOPS        float64       `json:"-"` // model FLOP/s, likewise
	MFU          float64       `json:"-"` // share of the measured peak, likewise
	MemoryShare  float64       `json:"-"` // as a share of the machine's memory
	Epoch        float64       `json:"-"`
	Tokens       float64       `json:"-"` // since the start of the run
	Elapsed, ETA time.Duration `json:"-"`
	SkippedTotal int           `json:"-"`
}

// With adds what follows from the start of the process that made a step: the step's own rates, NaN
// if the record lacks what they need.
func (s Step) With(start Start) Step {
	s.TokensPerSec, s.MFU = math.NaN(), math.NaN()
	if start.Tokens > 0 && s.Seconds > 0 {
		s.TokensPerSec = float64(start.Tokens) / s.Seconds
	}
	if s.FLOPS = s.TokensPerSec * start.FLOPs; start.FLOPs > 0 && start.Peak > 0 {
		s.MFU = s.FLOPS / start.Peak
	}
	return s
}

// Quantity declares a number of each step: its name in each output, and how it is shown. Outputs
// for which it has no name lack it.
type Quantity struct {
	Of func(*Step) float64 `json:"-"`

	Console     string `json:"-"` // label in a log line
	Format      Format `json:"-"`
	Place       Place  `json:"-"`
	JSON        string `json:"-"` // key in a log line
	TensorBoard string `json:"-"` // tag

	// Figure is the name of its chart in a Section of a page: a curve over the steps, with an axis
	// from Floor or a logarithmic one.
	Figure  string  `json:"id"`
	Section string  `json:"section"`
	Title   string  `json:"title"`
	Unit    string  `json:"unit,omitempty"`
	Caption string  `json:"caption,omitempty"`
	Floor   float64 `json:"floor"`
	Log     bool    `json:"log,omitempty"`
}

// Figures returns the quantities with a chart.
func Figures() []Quantity {
	return slices.DeleteFunc(slices.Clone(Quantities), func(q Quantity) bool { return q.Figure == "" })
}

// In returns the quantity of a step. It is false if the step lacks it.
func (q Quantity) In(s *Step) (x float64, ok bool) {
	x = q.Of(s)
	return x, x != 0 || q.Place != Optional
}

// Format is how a console shows a quantity: a verb of package fmt, or one of these.
type Format string

const (
	Thousands Format = "thousands" // 12,345
	Percent   Format = "percent"   // of a fraction
	Memory    Format = "memory"    // bytes, and MemoryShare
	Clock     Format = "clock"     // of seconds: 1m40s
)

// Place is the part of a log line that has a quantity. The parts are in this order.
type Place int

const (
	Leading  Place = iota // after the step
	Rates                 // of tokens and FLOPs, and memory
	Experts               // their load
	Closing               // what every run has
	Optional              // 0 means that the run lacks the quantity
)

// Quantities declares all quantities of a step.
var Quantities = []Quantity{
	{Of: func(s *Step) float64 { return float64(s.Step) }, JSON: "step"},
	{Of: func(s *Step) float64 { return s.Tokens }, JSON: "tokens"},
	{Of: func(s *Step) float64 { return float64(s.SkippedTotal) }, JSON: "skipped_total"},
	{Of: func(s *Step) float64 { return float64(s.Loss) }, Console: "loss", Format: "%7.4f", JSON: "loss", TensorBoard: "loss/train"},
	{Of: func(s *Step) float64 { return float64(s.GradNorm) }, Console: "grad_norm", Format: "%7.4f", JSON: "grad_norm", TensorBoard: "optimizer/grad_norm",
		Figure: "grad-norm", Section: "Loss", Title: "Gradient norm before clipping", Log: true,
		Caption: "A norm that keeps rising, or spikes, shows an instability before the loss does."},
	{Of: func(s *Step) float64 { return s.LR }, Console: "lr", Format: "%.2e", JSON: "lr", TensorBoard: "optimizer/lr",
		Figure: "lr", Section: "Loss", Title: "Learning rate"},
	{Of: func(s *Step) float64 { return s.Imbalance }, Place: Experts, Console: "imbalance", Format: "%.2f", JSON: "imbalance", TensorBoard: "experts/imbalance",
		Figure: "imbalance", Section: "Experts", Title: "Imbalance", Unit: "most loaded expert / mean", Floor: 1,
		Caption: "1 is perfect balance, and the number of experts over top-k is the worst: all tokens to the same few (mean over layers)."},
	{Of: func(s *Step) float64 { return s.Seconds }, TensorBoard: "seconds/step"},
	{Of: func(s *Step) float64 { return s.TokensPerSec }, Place: Rates, Console: "tps", Format: Thousands, JSON: "tps", TensorBoard: "speed/tokens_per_second",
		Figure: "speed", Section: "Speed and memory", Title: "Throughput", Unit: "tokens/s", Caption: "Steps only, without evaluations and checkpoints."},
	{Of: func(s *Step) float64 { return s.FLOPS / 1e12 }, Place: Rates, Console: "tflops", Format: "%.3f", JSON: "tflops"},
	{Of: func(s *Step) float64 { return s.MFU }, Place: Rates, Console: "mfu", Format: Percent, JSON: "mfu", TensorBoard: "speed/mfu",
		Figure: "mfu", Section: "Speed and memory", Title: "MFU", Unit: "share of the peak", Caption: "The model’s FLOP/s over the peak measured at the start of the run."},
	{Of: func(s *Step) float64 { return float64(s.Memory) }, Place: Rates, Console: "memory", Format: Memory, JSON: "memory_bytes"},
	{Of: func(s *Step) float64 { return float64(s.Memory) / (1 << 30) }, Place: Optional,
		TensorBoard: "memory/resident_gib", Figure: "memory", Section: "Speed and memory", Title: "Memory", Unit: "GiB", Caption: "Resident memory of the process that has rank 0."},
	{Of: func(s *Step) float64 { return s.MemoryShare }, JSON: "memory_share"},
	{Of: func(s *Step) float64 { return s.Epoch }, JSON: "epoch"},
	{Of: func(s *Step) float64 { return s.Elapsed.Seconds() }, JSON: "elapsed_s"},
	{Of: func(s *Step) float64 { return s.ETA.Seconds() }, Place: Closing, Console: "eta", Format: Clock, JSON: "eta_s"},
	{Of: func(s *Step) float64 { return float64(s.MTPLoss) }, Place: Optional, Console: "mtp", Format: "%.4f", JSON: "mtp_loss", TensorBoard: "loss/mtp"},
	{Of: func(s *Step) float64 { return float64(s.Balance) }, Place: Optional, Console: "balance", Format: "%.2e", JSON: "balance_loss", TensorBoard: "loss/balance"},
	{Of: func(s *Step) float64 { return float64(s.IndexLoss) }, Place: Optional, Console: "index", Format: "%.4f", JSON: "index_loss", TensorBoard: "loss/index"},
	{Of: func(s *Step) float64 { return float64(s.Dropped) }, Place: Optional, Console: "dropped", Format: Thousands, JSON: "dropped", TensorBoard: "experts/dropped"},
	{Of: func(s *Step) float64 { return s.Time }},
}

// Named returns the quantity with a key of JSON lines.
func Named(key string) Quantity {
	return Quantities[slices.IndexFunc(Quantities, func(q Quantity) bool { return q.JSON == key })]
}
