// Package config has the settings of a run: their defaults, what they allow, how they divide the
// model and the batch among ranks, and what a resumed run may change.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"spmoe/collective/ep"
	"spmoe/datasets"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/recipefile"
	"spmoe/launcher/routes"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/mx"
	"spmoe/tensor"
)

// Config is everything that defines a run except the number of ranks. The toml names are those of
// config files. --set KEY=VALUE sets any; those with the tag flag have a flag too (--steps 100).
type Config struct {
	Flavor string `toml:"flavor" flag:"yes" group:"run" resume:"fixed" help:"built-in model that the model section starts from"`
	Steps  int    `toml:"steps" range:"1..2147483648" flag:"yes" group:"run" resume:"harmless" help:"number of optimizer steps of the run"`

	ScheduleSteps int `toml:"schedule_steps,omitempty" range:"0..2147483648" group:"run" resume:"harmless" help:"steps that the learning rate is planned for, whatever the steps of the run are; after them it stays as it was in the last of them; 0: those of the run"`

	Seq         int  `toml:"seq" flag:"yes" group:"run" resume:"fixed" help:"tokens per sequence"`
	Batch       int  `toml:"batch" range:"1..16777216" flag:"yes" group:"run" resume:"meaningful" help:"sequences per optimizer step of all ranks together (the global batch)"`
	MicroBatch  int  `toml:"micro_batch" range:"0.." flag:"yes" group:"run" resume:"harmless" help:"maximum sequences per rank in one forward and backward pass; 0: the whole batch; results do not depend on it, except for the recipes that docs/layouts.md names"`
	ChainPasses bool `toml:"chain_passes" group:"run" resume:"harmless" help:"add the dense gradients of a step's passes one after another, not as a tree: saves FP32 copies of them, but the last bits of results then depend on micro_batch"`

	Recompute string `toml:"recompute" flag:"yes" group:"run" resume:"harmless" help:"recompute activations in the backward pass to save memory: none, selective (what is cheap) or full (all except the inputs of layers); results are bit-identical"`
	Precision string `toml:"precision" flag:"yes" group:"run" resume:"meaningful" help:"number formats of the matrix products: bf16, fp32 or a recipe such as mxfp8"`

	RecipeFile string `toml:"recipe,multiline" group:"run" resume:"meaningful" help:"file with a format and a rounding for each operand, instead of precision; docs/recipes/nvfp4.toml is a built-in one; a run's config has its text"`

	DPReplicate int  `toml:"dp_replicate" group:"layout" resume:"harmless" help:"groups of ranks with whole replicas of the model (data parallelism); ep is at most a group"`
	DPShard     int  `toml:"dp_shard" group:"layout" resume:"harmless" help:"ranks of each of these groups; -1: all ranks divided by dp_replicate"`
	FSDP        bool `toml:"fsdp" group:"layout" resume:"harmless" help:"each host holds a part of the dense weights and gradients, and gathers a block before its use; one host holds them once anyway; results are bit-identical"`
	CP          int  `toml:"cp" flag:"yes" group:"layout" resume:"harmless" help:"consecutive ranks that share each sequence (context parallelism), a power of two; results are bit-identical, except for recipes with a scale per tensor (nvfp4, fp8-tensor)"`
	TP          int  `toml:"tp" flag:"yes" group:"layout" resume:"harmless" help:"consecutive ranks that share each sequence and the products of its dense layers (tensor parallelism), a power of two; ep is at most dp_shard * cp * tp; hosts divide products each by itself; results are bit-identical, except for recipes with a scale per tensor (nvfp4, fp8-tensor)"`
	EP          int  `toml:"ep" flag:"yes" group:"layout" resume:"harmless" help:"consecutive ranks that hold each routed expert once and exchange tokens (expert parallelism); the others hold replicas; 0: dp_shard * cp * tp; results are bit-identical"`

	PP             int    `toml:"pp" flag:"yes" group:"layout" resume:"harmless" help:"ranks of a pipeline, each with stages of the model; a stage has dp_replicate * dp_shard ranks; results are bit-identical"`
	PPSchedule     string `toml:"pp_schedule" group:"layout" resume:"harmless" help:"order in which these ranks run micro-batches: 1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble or DualPipeV"`
	PPStages       int    `toml:"pp_stages_per_rank" group:"layout" resume:"harmless" help:"stages of each of these ranks; 0: the fewest that the schedule allows"`
	PPMicrobatches int    `toml:"pp_microbatches" range:"0.." group:"layout" resume:"harmless" help:"micro-batches per step, each a pass of all stages; 0: as micro_batch says"`
	PPOverlap      bool   `toml:"pp_overlap" group:"layout" resume:"harmless" help:"in the pairs of DualPipeV, a rank that waits for tokens of one pass continues with the other one; it needs more scratch memory; results are bit-identical"`

	EPExchange string  `toml:"ep_exchange" group:"layout" resume:"harmless" help:"token exchange between ranks: onesided or standard"`
	EPDispatch string  `toml:"ep_dispatch" group:"layout" resume:"meaningful" help:"format of tokens on their way to experts: bf16 (unchanged) or mxfp8"`
	EPCombine  string  `toml:"ep_combine_backward" group:"layout" resume:"meaningful" help:"format of gradients on their way to experts: bf16 (unchanged) or mxfp8"`
	EPCapacity float64 `toml:"ep_capacity" range:"0..1e9" group:"layout" resume:"meaningful" help:"maximum tokens per expert, as a multiple of the mean; further tokens are dropped, which changes the model; 0: no maximum"`
	Threads    int     `toml:"threads" range:"0..1024" flag:"yes" group:"layout" resume:"harmless" help:"threads per rank; 0: cores divided by ranks"`
	Seed       uint64  `toml:"seed" flag:"yes" group:"run" resume:"fixed" help:"seed of the initial weights and of the data order"`
	InitFrom   string  `toml:"init_from" flag:"yes" group:"run" resume:"fixed" help:"start a new run from the weights of a run, checkpoint or Hugging Face folder; empty: random weights"`
	Tokenizer  string  `toml:"tokenizer" flag:"yes" group:"run" resume:"fixed" help:"tokenizer: bytes, tiktoken:NAME (cl100k_base, o200k_base, p50k_base, r50k_base) or a Hugging Face tokenizer.json; it sets model.vocab"`
	EndToken   string  `toml:"end_token,omitempty" group:"run" resume:"fixed" help:"token of the tokenizer that ends documents, such as <|endoftext|>; empty: that of its tokenizer_config.json, or else of its special tokens"`

	SpecialTokens bool `toml:"special_tokens,omitempty" group:"run" resume:"fixed" help:"special tokens of the tokenizer that are spelled in text stand for themselves, in training text and in prompts; the end of a document divides text; default: they are ordinary text"`

	Data      []string `toml:"data" flag:"yes" group:"run" resume:"verified" help:"training data: files, folders or globs such as 'c4/*.jsonl.zst' of text, JSON Lines or Parquet, also .gz and .zst, or files of data tokenize; PATH@WEIGHT makes a mixture; default: the sources of the Go installation, or else text inside the program"`
	DataField string   `toml:"data_field" group:"run" resume:"verified" help:"field or column with the text in JSON Lines and Parquet files"`

	DataRules int `toml:"data_rules" group:"run" resume:"verified" help:"how files are read as documents, documents divided, and mixtures read: 3: lines that are <|endoftext|> or the end token end a document of a text file, and each source of a mixture is read by epochs; 2: as runs before did"`

	DocumentMask bool `toml:"document_mask" group:"run" resume:"meaningful" help:"prevent attention between documents that are packed into one sequence"`

	Out string `toml:"out" flag:"yes" group:"saving" resume:"harmless" help:"folder of the run; empty: the next free runs/FLAVOR-N"`

	SaveEvery Interval `toml:"save_every" flag:"yes" group:"saving" resume:"harmless" help:"steps or time between checkpoints, such as 500 or 10m; 0: only at the end"`
	SaveAsync bool     `toml:"save_async" group:"saving" resume:"harmless" help:"write checkpoints that are due by steps from a copy of the state while training continues"`
	SaveRetry Duration `toml:"save_retry" group:"saving" resume:"harmless" help:"how long to retry the last save of a run if it fails, for example on a full disk"`
	Keep      int      `toml:"keep" range:"0.." group:"saving" resume:"harmless" help:"checkpoints to keep, at least 2; 0: one, and if the next fills the disk, it is removed before that is written again, so a crash in between loses both"`

	LogEvery      int `toml:"log_every" range:"1.." group:"output" resume:"harmless" help:"steps between log lines"`
	EvalEvery     int `toml:"eval_every" range:"-1.." flag:"yes" group:"evaluation" resume:"harmless" help:"steps between evaluations of the validation loss; -1: ten evaluations, fewer if they would take more than 2 % of the run's FLOPs, but five if that is at most 10 %; 0: only at start and end"`
	EvalSequences int `toml:"eval_sequences" range:"1..2147483648" group:"evaluation" resume:"harmless" help:"validation sequences per evaluation"`

	RecordEvery   int    `toml:"record_every" range:"0.." group:"output" resume:"harmless" help:"steps between records of expert loads, quantization errors and expert choices on validation text in OUT/metrics.jsonl; 0: loads only, every 20 steps"`
	RecordRoutes  bool   `toml:"record_routes" group:"routes" resume:"harmless" help:"write the experts of each token and their weights, in every step and layer, to OUT/routes.arrow"`
	ReplayRoutes  string `toml:"replay_routes" group:"routes" resume:"meaningful" help:"file of a run with record_routes on the same text, seed and batch: its experts replace the router's choices in training, forward and backward"`
	ReplayWeights bool   `toml:"replay_weights" group:"routes" resume:"meaningful" help:"replay the weights of these experts as well; the router learns as if they were its own"`
	SampleEvery   int    `toml:"sample_every" range:"0.." group:"evaluation" resume:"harmless" help:"steps between samples of the model's text while it trains; 0: only at the end"`
	SampleTokens  int    `toml:"sample_tokens" range:"0..1048576" group:"evaluation" resume:"harmless" help:"tokens of a sample; 0: no samples"`
	SamplePrompt  string `toml:"sample_prompt" group:"evaluation" resume:"harmless" help:"prompt of the samples"`

	MX          MX `toml:"mx" group:"formats" resume:"meaningful"`
	moe.Options `group:"formats" resume:"meaningful"`
	Guard       Guard      `toml:"guard" group:"guard" resume:"harmless"`
	Optimizer   Optimizer  `toml:"optimizer" group:"optimizer" resume:"meaningful"`
	Model       moe.Config `toml:"model" group:"model" resume:"fixed"`
}

// MX varies the quantized recipes.
type MX struct {
	Gradient string `toml:"gradient" help:"format of quantized gradients, such as e4m3, e5m2 or int8; empty: the precision's"`
	Scale    string `toml:"scale"    help:"rounding rule for block scales: rceil, floor, ceil or even"`
}

// Default returns the configuration of a run of a flavor, with the flavor's own training settings.
func Default(flavor string) (Config, error) {
	f, err := moe.FindFlavor(flavor)
	if err != nil {
		return Config{}, err
	}
	t, optimizer := f.Training, optim.DefaultConfig()
	optimizer.Moments = cmp.Or(t.Moments, optimizer.Moments)
	return Config{
		Flavor: flavor, Steps: t.Steps, Seq: t.Seq, Batch: t.Batch, MicroBatch: t.MicroBatch, ChainPasses: t.ChainPasses, Recompute: moe.RecomputeNone.String(),
		Precision: "bf16", DPReplicate: 1, DPShard: -1, CP: 1, TP: 1, PP: 1, PPSchedule: "1F1B", EPExchange: "onesided",
		Seed: 1, Tokenizer: datasets.Bytes{}.Name(), DataField: datasets.DefaultField, DataRules: int(datasets.NewestRules),
		EPDispatch: ep.Plain.String(), EPCombine: ep.Plain.String(),
		SaveEvery: Every(10 * time.Minute), SaveAsync: true, SaveRetry: Duration(10 * time.Minute), Keep: 2,
		LogEvery: 20, EvalEvery: AutoEval, EvalSequences: t.EvalSequences, SampleTokens: 160, SamplePrompt: "// New returns ",
		MX: MX{Scale: mx.RCEIL.String()}, Options: moe.DefaultOptions(),
		Guard: Guard{Spike: 100, Skips: 5, Every: 1, Replay: 256},
		Optimizer: Optimizer{
			optim.Schedule{
				LR:        t.LR,
				Warmup:    t.Warmup,
				DecayFrac: t.DecayFrac,
				Decay:     t.Decay,
				MinFactor: t.MinFactor,
			},
			optimizer,
		},
		Model: f.Config,
	}, nil
}

// SetSteps sets the number of steps. A warm-up longer than a tenth of them is cut to a tenth, but
// not below 20 steps: the second moment of Adam with beta2 0.95 averages over about 20.
func (c *Config) SetSteps(steps int) {
	const least = 20
	c.Steps = steps
	c.Optimizer.Warmup = min(c.Optimizer.Warmup, max(steps/10, least))
}

// PlannedSteps returns the number of steps that the learning rate is planned for.
func (c Config) PlannedSteps() int { return cmp.Or(c.ScheduleSteps, c.Steps) }

// LearningRate returns the learning rate of a step, counted from 0.
func (c Config) LearningRate(step int) float64 {
	planned := c.PlannedSteps()
	return c.Optimizer.At(min(step, planned-1), planned)
}

// RankThreads returns the threads of each rank.
func (c Config) RankThreads(ranks, cores int) int {
	if c.Threads > 0 {
		return c.Threads
	}
	return max(1, cores/ranks)
}

// MakeAbsolute makes the paths of files that a run reads absolute, so that it can be resumed from
// another working directory.
func (c *Config) MakeAbsolute() error {
	c.Data = slices.Clone(c.Data)
	paths := []*string{&c.InitFrom, &c.ReplayRoutes}
	if datasets.TokenizerInFile(c.Tokenizer) {
		paths = append(paths, &c.Tokenizer)
	}
	var weights []string // "@WEIGHT" after the paths of data
	for i, given := range c.Data {
		path, _, _ := datasets.SplitWeight(given)
		weights = append(weights, given[len(path):])
		if c.Data[i] = path; !datasets.Remote(path) {
			paths = append(paths, &c.Data[i])
		}
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("%s: %w: give absolute paths", *path, err)
		}
		*path = absolute
	}
	for i, weight := range weights {
		c.Data[i] += weight
	}
	return nil
}

// ReadRecipe replaces the path of a recipe file by its text, and the precision by the recipe's
// name.
func (c *Config) ReadRecipe() error {
	if c.RecipeFile == "" {
		return nil
	}
	if !strings.Contains(c.RecipeFile, "\n") {
		text, err := system.ReadFile(c.RecipeFile, stricttoml.MaxSize)
		if err != nil {
			return fmt.Errorf("recipe: %w: give a file (docs/recipes/nvfp4.toml is one)", err)
		}
		p, err := recipefile.Parse(string(text))
		if err != nil {
			return fmt.Errorf("recipe: %s: %w", c.RecipeFile, err)
		}
		c.RecipeFile, c.Precision = string(text)+"\n", p.Name
	}
	return nil
}

// Recipe returns the precision of the run: that of the recipe file, or a built-in one with the
// variations in its sections.
func (c Config) Recipe() (moe.Precision, error) {
	if c.RecipeFile != "" {
		return c.recipeOfFile()
	}
	p, err := c.Options.Precision(c.Precision)
	if err != nil {
		return p, err
	}
	scale, err := mx.ParseScaleMode(c.MX.Scale)
	if err != nil {
		return p, fmt.Errorf("mx.scale: %w", err)
	}
	var gradient *mx.Format
	if c.MX.Gradient != "" {
		f, err := mx.ParseFormat(c.MX.Gradient)
		if err != nil {
			return p, fmt.Errorf("mx.gradient: %w", err)
		}
		gradient = &f
	}
	p = p.With(gradient, scale)
	return p, p.Validate()
}

// recipeOfFile returns the recipe of the recipe file. A sum other than the default replaces its
// sums.
func (c Config) recipeOfFile() (moe.Precision, error) {
	p, err := recipefile.Parse(c.RecipeFile)
	if err != nil || c.Sum == mx.SumFP32.String() {
		return p, err
	}
	s, err := mx.ParseSum(c.Sum)
	if err != nil {
		return p, err
	}
	p = p.WithSum(s)
	return p, p.Validate()
}

// Exchange returns the options of the exchange.
func (c Config) Exchange() (ep.Options, error) {
	o := ep.Options{Capacity: c.EPCapacity}
	var errs [2]error
	for i, wire := range []struct {
		name, value string
		to          *ep.Wire
	}{{"ep_dispatch", c.EPDispatch, &o.Dispatch}, {"ep_combine_backward", c.EPCombine, &o.CombineBackward}} {
		var err error
		if *wire.to, err = ep.ParseWire(wire.value); err != nil {
			errs[i] = fmt.Errorf("%s: %w", wire.name, err)
		} else if *wire.to != ep.Plain && c.EPExchange != "onesided" {
			errs[i] = fmt.Errorf("%s is %q: it needs ep_exchange onesided", wire.name, wire.value)
		}
	}
	return o, errors.Join(errs[:]...)
}

// DType returns the element type of weights and activations.
func (c Config) DType() (tensor.DType, error) {
	p, err := c.Recipe()
	return p.DType, err
}

// FewestKept is the minimum number of checkpoints that a run keeps, because the newest may turn out
// to be damaged. Only a run that keeps 0 has a single one, and gives it up for the next if the disk
// has no room for both.
const FewestKept = 2

// MaxCount limits counts, far above any run. So positions, which are products of counts, cannot
// overflow.
const MaxCount = 1 << 31

// outOfRange returns an error for each setting outside of the range in the tag of its field, such
// as range:"0..1024".
func (c Config) outOfRange() (errs []error) {
	EachSetting(c, func(key Key, v any) {
		low, high, ok := strings.Cut(key.Range, "..")
		if !ok {
			return
		}
		x, least, most := 0.0, 0.0, math.Inf(1)
		fmt.Sscan(fmt.Sprint(v), &x)
		fmt.Sscan(low, &least)
		give := low + " or more"
		if high != "" {
			fmt.Sscan(high, &most)
			give = low + " to " + high
		}
		if !(x >= least && x <= most) {
			errs = append(errs, fmt.Errorf("%s is %v: give %s: %s", key.Name, v, give, key.Help))
		}
	})
	return errs
}

// Validate returns an error with every reason why n ranks cannot run this configuration.
func (c Config) Validate(ranks int) error {
	errs := c.outOfRange()
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(ranks >= 1, "-np is %d: give 1 or more ranks", ranks)
	// A run could not be resumed from what a config file cannot hold.
	must(c.Seed <= math.MaxInt64, "seed is %d: give at most %d, the largest that TOML holds", c.Seed, math.MaxInt64)
	for _, text := range append([]string{c.Out, c.SamplePrompt, c.InitFrom, c.Tokenizer, c.EndToken, c.DataField, c.ReplayRoutes}, c.Data...) {
		must(utf8.ValidString(text), "%q is not UTF-8: give a path or a sample_prompt that is", text)
	}
	must(c.DataRules != 0, "data_rules is 0: give %d or %d; new runs have the last", datasets.TextRules, datasets.NewestRules)
	must(c.Seq >= 1 && c.Seq <= c.Model.MaxPositions, "seq is %d: give 1 to %d (model.max_positions)", c.Seq, c.Model.MaxPositions)
	must(slices.Contains(ep.Names(), c.EPExchange), "ep_exchange is %q: use %s", c.EPExchange, strings.Join(ep.Names(), " or "))
	must(c.EPCapacity == 0 || c.EPExchange == "onesided", "ep_capacity is %v: it needs ep_exchange onesided", c.EPCapacity)
	must(c.SaveEvery >= 0 || c.SaveEvery.Time() >= leastInterval, "save_every is %v: give a number of steps (500), a time (10m) or 0 (at the end only)", c.SaveEvery)
	must(c.SaveRetry == 0 || c.SaveRetry >= Duration(time.Second), "save_retry is %v: give a time of 1s or more such as 10m, or 0s", c.SaveRetry)
	must(c.RecordEvery == 0 || c.Model.Experts <= 1<<16, "record_every is %d: a record holds the choices of at most %d experts, not %d", c.RecordEvery, 1<<16, c.Model.Experts)
	must(!c.RecordRoutes && c.ReplayRoutes == "" || c.Model.MoELayers() > 0, "record_routes and replay_routes need a model with routed experts")
	must(!c.RecordRoutes || c.Model.Experts <= routes.MaxExperts, "record_routes: a file holds the choices of at most %d experts, not %d", routes.MaxExperts, c.Model.Experts)
	must(!c.ReplayWeights || c.ReplayRoutes != "", "replay_weights needs replay_routes")
	must(c.Guard.Spike == 0 || c.Guard.Spike > 1 && !math.IsInf(c.Guard.Spike, 0), "guard.spike is %g: give 0 (off) or a multiple of the median gradient norm above 1, such as 100", c.Guard.Spike)
	must(c.SampleTokens == 0 || c.SamplePrompt != "", "sample_prompt is empty: give text to continue, or sample_tokens 0")
	must(c.Model.Vocab >= datasets.Bytes{}.VocabSize(), "model.vocab is %d: the byte tokenizer needs %d, all others more", c.Model.Vocab, datasets.Bytes{}.VocabSize())
	must(c.Optimizer.QKClip == 0 || !c.Model.QKNorm && !c.Model.QKVBias && c.Model.Attention == "",
		"optimizer.qk_clip is %g: with model.qk_norm, model.qkv_bias or model.attention, scores do not follow the weights that it scales: give 0", c.Optimizer.QKClip)
	recipe, err := c.Recipe()
	if err == nil {
		err = recipe.CheckLayers(c.Model)
	}
	_, wires := c.Exchange()
	_, recompute := moe.ParseRecompute(c.Recompute)
	errs = append(errs, err, wires, recompute, datasets.Rules(c.DataRules).Validate(), c.Optimizer.Schedule.Validate(), c.Optimizer.Config.Validate(), c.Model.Validate())
	if ranks >= 1 {
		errs = append(errs, c.divides(ranks), c.checkReplicas(ranks), c.checkPipeline(ranks), c.checkContext(ranks))
	}
	return errors.Join(errs...)
}

// Guard is the configuration of the guards.
type Guard struct {
	Spike  float64 `toml:"spike"       help:"recompute a step whose gradient norm exceeds optimizer.clip_norm and this multiple of the median of the last 64, and skip it if the norm stays; 0: accept any finite norm"`
	Skips  int     `toml:"skips" range:"0.."       help:"maximum number of skipped steps within 100; one more ends the run with exit code 93"`
	Every  int     `toml:"every" range:"0.."       help:"steps between checks that selection biases and rotary tables have not changed in memory (1: every step); master weights, moments and working weights are checked at every step; 0: check nothing"`
	Replay int     `toml:"replay" range:"0.."      help:"compute the gradients of every Nth step twice; a difference ends the run or the process of a rank; 0: never"`
}

// UnclippedSpike is the norm that a spike exceeds where gradients are not clipped: the default of
// optimizer.clip_norm.
const UnclippedSpike = 1

// TOML returns a valid configuration as a config file.
func TOML(cfg Config) ([]byte, error) {
	var buf bytes.Buffer
	err := toml.NewEncoder(&buf).Encode(cfg)
	return buf.Bytes(), err
}

// Kept returns the number of checkpoints that a run keeps after a save.
func (c Config) Kept() int {
	if c.Keep == 0 {
		return 1
	}
	return max(c.Keep, FewestKept)
}

// Copies reports whether the state is copied, so that training can continue while it is written.
// The last save of a run needs no copy. Saves by time, which are the default and rare, do without:
// the copy would double the memory of the optimizer's state.
func (c Config) Copies() bool { return c.SaveAsync && c.SaveEvery.Steps() > 0 }
