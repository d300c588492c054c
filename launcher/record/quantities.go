package record

// The quantities of a step. Console, JSON lines, TensorBoard, metrics.csv, Prometheus and pages all
// read their declarations here.

import (
	"errors"
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
	Dropped   int64   `json:"dropped,omitempty"`      // choices beyond ep_capacity, of all layers and ranks
	Time      float64 `json:"time,omitempty"`         // seconds since 1970, at its end

	Steps        int           `json:"-"` // of the run
	TokensPerSec float64       `json:"-"` // in the log: mean since the previous line
	FLOPS        float64       `json:"-"` // model FLOP/s, likewise
	MFU          float64       `json:"-"` // share of the measured peak, likewise
	Memory       int64         `json:"-"` // resident bytes of the process
	MemoryShare  float64       `json:"-"` // as a share of the machine's memory
	Epoch        float64       `json:"-"`
	Tokens       float64       `json:"-"` // since the start of the run
	Elapsed, ETA time.Duration `json:"-"`
	SkippedTotal int           `json:"-"`
}

// With adds what follows from the start of the process that made a step: the tokens since the start
// of the run, and the step's own rates. Rates are NaN if the record lacks what they need.
func (s Step) With(start Start) Step {
	s.Tokens = float64(s.Step) * float64(start.Tokens)
	s.TokensPerSec, s.MFU = math.NaN(), math.NaN()
	if start.Tokens > 0 && s.Seconds > 0 {
		s.TokensPerSec = float64(start.Tokens) / s.Seconds
	}
	if s.FLOPS = s.TokensPerSec * start.FLOPs; start.FLOPs > 0 && start.Peak > 0 {
		s.MFU = s.FLOPS / start.Peak
	}
	return s
}

func (s *Step) check() error {
	var rules []error
	for _, q := range Quantities {
		if x := q.Of(s); q.Count {
			rules = append(rules, counted(q.JSON, int64(x)))
		} else {
			rules = append(rules, measured(x))
		}
	}
	return errors.Join(rules...)
}

// Quantity declares a number of each step: its name in each output, and how it is shown. Outputs
// for which it has no name lack it.
type Quantity struct {
	Of    func(*Step) float64
	Count bool // an integer from 0

	Console     string // label in a log line
	Format      Format
	Place       Place
	JSON        string // key in a log line
	CSV         string // column of metrics.csv
	TensorBoard string // tag

	Prometheus, Help string // metric of the newest step, and what it is

	// Figure is the name of the quantity's chart in a Section of the page of a run. With a Caption
	// it is a curve over the steps, with an axis from Floor or a logarithmic one. Without one,
	// package page has a function for it. Compare is its section of the page of several runs.
	Figure, Section, Title, Unit, Caption, Compare string
	Floor                                          float64
	Log                                            bool
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
	Optional              // 0 means that the run lacks the quantity: only tables have it then
)

// Quantities declares all quantities of a step, in the order of the columns of metrics.csv.
var Quantities = []Quantity{
	{Of: func(s *Step) float64 { return float64(s.Step) }, Count: true, JSON: "step", CSV: "step",
		Prometheus: "spmoe_steps_total", Help: "Optimizer steps."},
	{Of: func(s *Step) float64 { return s.Tokens }, Count: true, JSON: "tokens", CSV: "tokens",
		Prometheus: "spmoe_tokens_total", Help: "Tokens trained on."},
	{Of: func(s *Step) float64 { return float64(s.SkippedTotal) }, Count: true, JSON: "skipped_total",
		Prometheus: "spmoe_steps_skipped_total", Help: "Steps whose gradients were not fit for use."},
	{Of: func(s *Step) float64 { return float64(s.Loss) }, Console: "loss", Format: "%7.4f", JSON: "loss", CSV: "loss", TensorBoard: "loss/train",
		Prometheus: "spmoe_loss", Help: "Training loss of the last step in nats per token.", Figure: "loss", Section: "Loss"},
	{Of: func(s *Step) float64 { return float64(s.GradNorm) }, Console: "grad_norm", Format: "%7.4f", JSON: "grad_norm", CSV: "grad_norm", TensorBoard: "optimizer/grad_norm",
		Prometheus: "spmoe_gradient_norm", Help: "Gradient norm of the last step, before clipping.",
		Figure: "grad-norm", Section: "Loss", Title: "Gradient norm before clipping", Unit: "gradient norm", Log: true, Compare: "Gradients",
		Caption: "A norm that keeps rising, or spikes, shows an instability before the loss does."},
	{Of: func(s *Step) float64 { return s.LR }, Console: "lr", Format: "%.2e", JSON: "lr", CSV: "lr", TensorBoard: "optimizer/lr",
		Prometheus: "spmoe_learning_rate", Help: "Learning rate of the last step."},
	{Of: func(s *Step) float64 { return s.Imbalance }, Place: Experts, Console: "imbalance", Format: "%.2f", JSON: "imbalance", CSV: "imbalance", TensorBoard: "experts/imbalance",
		Prometheus: "spmoe_expert_imbalance", Help: "Most loaded expert over the mean, averaged over layers.",
		Figure: "imbalance", Section: "Experts", Title: "Imbalance", Unit: "most loaded expert / mean", Floor: 1,
		Caption: "1 is perfect balance, and the number of experts over top-k is the worst: all tokens to the same few (mean over layers)."},
	{Of: func(s *Step) float64 { return s.Seconds }, CSV: "seconds", TensorBoard: "seconds/step",
		Prometheus: "spmoe_step_seconds", Help: "Time of the last step."},
	{Of: func(s *Step) float64 { return s.TokensPerSec }, Place: Rates, Console: "tps", Format: Thousands, JSON: "tps", CSV: "tokens_per_second", TensorBoard: "speed/tokens_per_second",
		Prometheus: "spmoe_tokens_per_second", Help: "Tokens per second of the last step.", Figure: "speed", Section: "Speed",
		Title: "Throughput", Unit: "tokens/s", Compare: "Speed", Caption: "Steps only, without evaluations and checkpoints."},
	{Of: func(s *Step) float64 { return s.FLOPS / 1e12 }, Place: Rates, Console: "tflops", Format: "%.3f", JSON: "tflops"},
	{Of: func(s *Step) float64 { return s.MFU }, Place: Rates, Console: "mfu", Format: Percent, JSON: "mfu", TensorBoard: "speed/mfu",
		Prometheus: "spmoe_mfu_ratio", Help: "Model FLOPs of the last step as a share of the machine's measured peak."},
	{Of: func(s *Step) float64 { return float64(s.Memory) }, Place: Rates, Console: "memory", Format: Memory, JSON: "memory_bytes"},
	{Of: func(s *Step) float64 { return s.MemoryShare }, JSON: "memory_share"},
	{Of: func(s *Step) float64 { return s.Epoch }, JSON: "epoch"},
	{Of: func(s *Step) float64 { return s.Elapsed.Seconds() }, JSON: "elapsed_s"},
	{Of: func(s *Step) float64 { return s.ETA.Seconds() }, Place: Closing, Console: "eta", Format: Clock, JSON: "eta_s"},
	{Of: (*Step).skipped, CSV: "skipped"},
	{Of: func(s *Step) float64 { return float64(s.MTPLoss) }, Place: Optional, Console: "mtp", Format: "%.4f", JSON: "mtp_loss", CSV: "mtp_loss", TensorBoard: "loss/mtp"},
	{Of: func(s *Step) float64 { return float64(s.Balance) }, Place: Optional, Console: "balance", Format: "%.2e", JSON: "balance_loss", CSV: "balance_loss", TensorBoard: "loss/balance"},
	{Of: func(s *Step) float64 { return float64(s.Dropped) }, Place: Optional, Count: true, Console: "dropped", Format: Thousands, JSON: "dropped", CSV: "dropped", TensorBoard: "experts/dropped"},
	{Of: func(s *Step) float64 { return s.Time }, CSV: "time",
		Prometheus: "spmoe_last_step_timestamp_seconds", Help: "When the last step ended, since 1970."},
}

// Named returns the quantity with a key of JSON lines.
func Named(key string) Quantity {
	return Quantities[slices.IndexFunc(Quantities, func(q Quantity) bool { return q.JSON == key })]
}

func (s *Step) skipped() float64 {
	if s.Skipped {
		return 1
	}
	return 0
}
