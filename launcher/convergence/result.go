// Package convergence tests whether training in one precision converges like training in another.
//
// A [Comparison] trains each recipe from the same weights on the same tokens, for several seeds.
// Its [Result] has the paired differences of the final losses and the verdict of an equivalence
// test.
package convergence

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
	"spmoe/launcher/system"
)

// Result is a finished comparison. It is stored as result.json, and the report shows it.
type Result struct {
	Command  string    `json:"command"`
	Version  string    `json:"version"`          // revision of the program
	Machines []Machine `json:"machines"`         // of the runs
	Varied   []string  `json:"varied,omitempty"` // settings that arms vary, with their values
	Setup    Setup     `json:"setup"`
	Margin   float64   `json:"margin"` // of equivalence, as a fraction of the baseline's loss: 0.005

	Looks []design.Look `json:"looks"`       // when the arms were to be judged, and at which levels
	Plan  string        `json:"plan_sha256"` // of plan.toml, which was written before the first run

	Arms []Arm `json:"arms"` // the baseline first

	// Spread is the scatter of the baseline over its own seeds.
	Spread struct {
		Train   Spread `json:"train"`
		HeldOut Spread `json:"held_out"`
	} `json:"baseline_spread"`
}

// Machine is a machine that trained runs.
type Machine struct {
	CPU   string `json:"cpu"`
	Tier  string `json:"tier"`
	Cores int    `json:"cores"`
}

// Setup is the part of the configuration that all arms share.
type Setup struct {
	Flavor     string   `json:"flavor"`
	Parameters int64    `json:"parameters"`
	Steps      int      `json:"steps"`
	Batch      int      `json:"batch"`
	Seq        int      `json:"seq"`
	Ranks      int      `json:"ranks"`
	Jobs       int      `json:"jobs"` // concurrent runs; above 1, speeds and times are not comparable
	Seeds      []uint64 `json:"seeds"`
	Tail       int      `json:"tail"`          // steps that a run's final training loss averages
	EMA        float64  `json:"ema,omitempty"` // decay of the averaged weights; 0: there are none
	Config     string   `json:"config"`        // of the baseline's first run, TOML
}

// Spread is the scatter of a loss over seeds.
type Spread struct {
	Mean float64 `json:"mean"` // nats per token
	SD   float64 `json:"sd"`   // as a fraction of the mean; 0 for one seed
}

// Verdicts of arms.
const (
	Baseline   = "baseline"
	Equivalent = design.Equivalent
	Different  = design.Different // or the arm diverged where the baseline did not
	Undecided  = design.Undecided // or the baseline diverged
)

// Arm is one way to train, over all its seeds. An arm has no seeds after the look that decided it.
type Arm struct {
	Name      string      `json:"name"`
	About     string      `json:"about"`
	Ablation  bool        `json:"ablation"` // in results of earlier versions: one seed, not part of the overall verdict
	Runs      []Run       `json:"runs"`
	Verdict   string      `json:"verdict"`
	Train     *Difference `json:"train,omitempty"`      // to the baseline; nil for the baseline itself, or if a loss is not finite
	HeldOut   *Difference `json:"held_out,omitempty"`   // the same
	Course    []Window    `json:"course,omitempty"`     // of the difference in training loss
	TextError float64     `json:"text_error,omitempty"` // standard error of HeldOut.Mean as an estimate for other text; 0: not known
	Agreement []Agreement `json:"router_agreement,omitempty"`

	Averaged *Averaged `json:"averaged,omitempty"` // nil if the comparison has no averaged weights

	Speed float64       `json:"tokens_per_second"` // median over warm steps of all runs
	Times *record.Times `json:"times,omitempty"`   // of the first run
}

// Run is one arm trained with one seed.
type Run struct {
	Seed     uint64        `json:"seed"`
	Folder   string        `json:"folder"`
	Train    record.Number `json:"train_loss"`              // mean of the last Setup.Tail steps, nats per token
	HeldOut  record.Number `json:"held_out_loss"`           // after the last step
	Averaged record.Number `json:"averaged_loss,omitempty"` // the same of the averaged weights; 0: none
	Skipped  int           `json:"skipped"`
	Speed    float64       `json:"tokens_per_second"` // median over warm steps

	// Diverged says that a loss is not finite, or that the validation loss is no lower than that of
	// a uniform guess, ln(vocabulary).
	Diverged bool `json:"diverged"`

	Log *record.Log `json:"-"` // the whole record of the run
}

// Difference describes how much higher an arm's loss is than the baseline's with the same seed, as
// a fraction of the latter. Its intervals are Student's, of zero width if SD is 0. They hold for
// all looks of the comparison together, so those of an early look are wide.
type Difference struct {
	Pairs    []float64  `json:"pairs"` // by seed
	Mean     float64    `json:"mean"`
	SD       float64    `json:"sd"`   // between seeds
	CI95     [2]float64 `json:"ci95"` // of the mean, for training and validation loss together; without zero: a difference is shown
	CI90     [2]float64 `json:"ci90"` // of the mean, for this loss; inside ±Margin: equivalence is shown
	P        float64    `json:"p"`    // of two one-sided t-tests against ±Margin (TOST)
	Level    float64    `json:"level"`
	Seeds    int        `json:"seeds"`
	Within   bool       `json:"equivalent"`      // P < Level
	Smallest float64    `json:"smallest_margin"` // that the data would have passed
}

// Window is the difference in mean training loss over some steps, with a 95 % interval of its own.
type Window struct {
	From int        `json:"from"` // first step
	To   int        `json:"to"`   // last step
	Mean float64    `json:"mean"`
	CI95 [2]float64 `json:"ci95"`
}

// Agreement is the fraction of expert choices on a validation text that an arm and the baseline
// share after a step, as a mean over seeds.
type Agreement struct {
	Step  int     `json:"step"`
	Layer int     `json:"layer"`
	Share float64 `json:"share"` // of a token's top-k experts; chance is top-k/experts
}

// Averaged is how an arm's averaged weights compare with the baseline's. It has no effect on the
// verdict of the arm.
type Averaged struct {
	Difference *Difference `json:"difference"` // in validation loss; nil if a loss is not finite
	Verdict    string      `json:"verdict"`    // on this loss alone
}

// maxResult is far above the size of a result in bytes.
const maxResult = 64 << 20

// ReadResult returns the result of a finished comparison, without the logs of its runs.
func ReadResult(folder string) (r Result, err error) {
	path := filepath.Join(folder, resultFile)
	text, err := system.ReadFile(path, maxResult)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
