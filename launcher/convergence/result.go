// Package convergence answers whether training in one precision ends where training in another
// does: it trains both from the same weights on the same tokens, for several seeds, and compares
// the ends with the statistics of an equivalence test.
package convergence

import "spmoe/launcher/record"

// Result is a finished comparison: what result.json holds and the report shows.
type Result struct {
	Command  string    `json:"command"`
	Version  string    `json:"version"`  // revision of the program
	Machines []Machine `json:"machines"` // on which runs were made
	Setup    Setup     `json:"setup"`
	Margin   float64   `json:"margin"` // of equivalence, as a part of the baseline's loss: 0.005
	Arms     []Arm     `json:"arms"`   // the baseline first

	// Spread is how far the baseline's own seeds lie apart.
	Spread struct {
		Train   Spread `json:"train"`
		HeldOut Spread `json:"held_out"`
	} `json:"baseline_spread"`
}

// Machine is where the runs were made.
type Machine struct {
	CPU   string `json:"cpu"`
	Tier  string `json:"tier"`
	Cores int    `json:"cores"`
}

// Setup is what all arms have in common.
type Setup struct {
	Flavor     string   `json:"flavor"`
	Parameters int64    `json:"parameters"`
	Steps      int      `json:"steps"`
	Batch      int      `json:"batch"`
	Seq        int      `json:"seq"`
	Ranks      int      `json:"ranks"`
	Jobs       int      `json:"jobs"` // runs at the same time; above 1, speeds and times are not comparable
	Seeds      []uint64 `json:"seeds"`
	Tail       int      `json:"tail"`   // last steps whose mean is a run's final training loss
	Config     string   `json:"config"` // of the baseline's first run, TOML
}

// Spread is the scatter of a loss over seeds.
type Spread struct {
	Mean float64 `json:"mean"` // nats a token
	SD   float64 `json:"sd"`   // as a part of the mean; 0 for one seed
}

// Verdicts.
const (
	Baseline      = "baseline"
	Equivalent    = "equivalent"
	NotEquivalent = "not equivalent"
	Undecided     = "undecided" // fewer than two seeds: no statement about other seeds is possible
)

// Arm is one way to train, over all its seeds.
type Arm struct {
	Name      string        `json:"name"`
	About     string        `json:"about"`
	Ablation  bool          `json:"ablation"` // run for the table only; no part of the overall verdict
	Runs      []Run         `json:"runs"`
	Verdict   string        `json:"verdict"`
	Train     *Difference   `json:"train,omitempty"`    // to the baseline; nil for the baseline itself, and where a loss is not finite
	HeldOut   *Difference   `json:"held_out,omitempty"` // the same
	Agreement []Agreement   `json:"router_agreement,omitempty"`
	Speed     float64       `json:"tokens_per_second"` // median over warm steps of all runs
	Times     *record.Times `json:"times,omitempty"`   // of the first run
}

// Run is one arm trained with one seed.
type Run struct {
	Seed    uint64        `json:"seed"`
	Folder  string        `json:"folder"`
	Train   record.Number `json:"train_loss"`    // mean of the last Setup.Tail steps, nats a token
	HeldOut record.Number `json:"held_out_loss"` // after the last step
	Skipped int           `json:"skipped"`
	Speed   float64       `json:"tokens_per_second"` // median over warm steps

	// Diverged says that a loss is not finite, or that the held-out loss ended no lower than that
	// of guessing blindly, ln(vocabulary).
	Diverged bool `json:"diverged"`

	Log *record.Log `json:"-"`
}

// Difference is how much higher an arm's loss is than the baseline's with the same seed, as a part
// of the latter, and what the seeds together say of it.
type Difference struct {
	Pairs  []float64  `json:"pairs"` // by seed
	Mean   float64    `json:"mean"`
	SD     float64    `json:"sd"`   // between seeds
	CI95   [2]float64 `json:"ci95"` // of the mean, Student's t; without width where SD is 0
	CI90   [2]float64 `json:"ci90"` // inside ±Margin exactly if the test below rejects at 5 %
	P      float64    `json:"p"`    // of two one-sided t-tests against ±Margin (TOST); below 0.05: equivalent
	Seeds  int        `json:"seeds"`
	Within bool       `json:"equivalent"` // P < 0.05
}

// Agreement is the part of a held-out text's expert choices that an arm and the baseline share
// after a step, mean over seeds.
type Agreement struct {
	Step  int     `json:"step"`
	Layer int     `json:"layer"`
	Share float64 `json:"share"` // of a token's top-k experts; chance is top-k/experts
}
