package moe

import (
	"math"
)

// Config is the shape of a model and the settings of its loss. The toml names are those of config
// files and of --set (model.layers=4). hf.go maps the same fields to Hugging Face
// names.
type Config struct {
	Vocab       int `toml:"vocab" help:"vocabulary size"`
	Dim         int `toml:"dim" help:"hidden size"`
	Layers      int `toml:"layers" help:"transformer layers"`
	DenseLayers int `toml:"dense_layers" help:"number of first layers with a dense FFN instead of experts"`
	DenseInter  int `toml:"dense_inter" help:"width of the dense FFN"`

	Heads      int  `toml:"heads" help:"attention heads"`
	KVHeads    int  `toml:"kv_heads" help:"heads of keys and values, in grouped-query attention; 0: multi-head latent attention"`
	QRank      int  `toml:"q_rank" help:"rank of the query compression; 0: none"`
	KVRank     int  `toml:"kv_rank" help:"rank of the key-value compression; 0 with model.kv_heads"`
	NopeDim    int  `toml:"nope_dim" help:"head dimension without position"`
	RopeDim    int  `toml:"rope_dim" help:"head dimension with rotary position; in latent attention all heads share its keys"`
	ValueDim   int  `toml:"value_dim" help:"head dimension of the values"`
	QKNorm     bool `toml:"qk_norm" help:"normalize queries and keys of each head, in grouped-query attention"`
	QKVBias    bool `toml:"qkv_bias" help:"add biases to queries, keys and values, in grouped-query attention"`
	OutputBias bool `toml:"output_bias" help:"add a bias to the output of grouped-query attention"`

	IndexHeads   int     `toml:"index_heads" help:"heads of the indexer, which chooses the keys of each query (DeepSeek sparse attention); 0: attention over all keys"`
	IndexDim     int     `toml:"index_dim" help:"dimension of the indexer's heads and of its key"`
	IndexTopK    int     `toml:"index_top_k" resume:"meaningful" help:"keys that a query attends to"`
	IndexRope    string  `toml:"index_rope" help:"rotary pairs of the indexer: half (DeepSeek-V3.2) or interleaved (GLM-5)"`
	IndexerTypes string  `toml:"indexer_types" help:"a letter per layer: F for a full indexer, S for the choice of the last layer with one, such as FFFSSSF; empty: all are full"`
	IndexStage   string  `toml:"index_stage" resume:"meaningful" help:"training of the indexer: warmup (attention over all keys, only the indexer trains) or sparse (attention over chosen keys, everything trains); empty: sparse"`
	IndexWeight  float64 `toml:"index_weight" resume:"meaningful" help:"weight of the indexer's loss; 0: the indexer does not train"`

	Attention     string  `toml:"attention" help:"attention of each layer as in DeepSeek-V4, a list of sliding, csa and hca whose last two repeat to the end; empty: latent or grouped-query attention"`
	Window        int     `toml:"window" resume:"meaningful" help:"last tokens that a token attends to, with model.attention"`
	CSARate       int     `toml:"csa_rate" help:"tokens of an entry of layers of kind csa, whose indexer chooses entries"`
	HCARate       int     `toml:"hca_rate" help:"tokens of an entry of layers of kind hca, which attend to all entries"`
	OutputGroups  int     `toml:"o_groups" help:"groups of heads that are compressed together, with model.attention"`
	OutputRank    int     `toml:"o_rank" help:"rank of that compression"`
	CompressTheta float64 `toml:"compress_theta" resume:"meaningful" help:"base of the rotary frequencies of layers with entries, to which alone YaRN applies"`

	Experts       int     `toml:"experts" help:"routed experts"`
	TopK          int     `toml:"top_k" resume:"meaningful" help:"routed experts per token"`
	ExpertInter   int     `toml:"expert_inter" help:"width of an expert"`
	SharedExperts int     `toml:"shared_experts" help:"shared experts, which every token visits"`
	Groups        int     `toml:"groups" resume:"meaningful" help:"expert groups (nodes) for limited routing"`
	TopKGroups    int     `toml:"top_k_groups" resume:"meaningful" help:"maximum expert groups per token"`
	ScoreFunc     string  `toml:"score_func" resume:"meaningful" help:"router scores: sigmoid, softmax or sqrtsoftplus"`
	HashLayers    int     `toml:"hash_layers" help:"number of first layers with experts whose experts depend on the token only, by a table that never changes"`
	SwiGLULimit   float64 `toml:"swiglu_limit" resume:"meaningful" help:"largest gate, and largest magnitude of what it multiplies, in experts and shared experts; 0: no limit"`
	NormTopK      bool    `toml:"norm_top_k" resume:"meaningful" help:"normalize the weights of the selected experts"`
	RouteScale    float64 `toml:"route_scale" resume:"meaningful" help:"factor on the weights of the routed experts"`

	ForceBalance       bool    `toml:"force_balance" resume:"meaningful" help:"assign tokens to experts in turns, regardless of scores, as published speed measurements do"`
	BiasSpeed          float64 `toml:"bias_speed" resume:"meaningful" help:"step of the router's selection bias (auxiliary-loss-free balancing); 0: off"`
	BalanceAlpha       float64 `toml:"balance_alpha" resume:"meaningful" help:"weight of the sequence-wise balance loss; 0: off"`
	ResidualStreams    int     `toml:"streams" help:"residual streams of a token, joined by hyper-connections; 0: one, without them"`
	SinkhornIterations int     `toml:"sinkhorn_iterations" resume:"meaningful" help:"iterations that make the mix of residual streams nearly doubly stochastic"`
	StreamEps          float64 `toml:"stream_eps" resume:"meaningful" help:"epsilon of the mix of residual streams"`

	MTPLayers int     `toml:"mtp_layers" help:"multi-token prediction modules: 0 or 1"`
	MTPWeight float64 `toml:"mtp_weight" resume:"meaningful" help:"weight of the multi-token prediction loss"`

	NormEps      float64 `toml:"norm_eps" resume:"meaningful" help:"epsilon of RMSNorm"`
	MaxPositions int     `toml:"max_positions" resume:"harmless" help:"maximum sequence length"`
	RopeTheta    float64 `toml:"rope_theta" resume:"meaningful" help:"base of the rotary frequencies"`
	YaRN         YaRN    `toml:"yarn" resume:"meaningful"`
}

// YaRN extends rotary embedding to longer contexts (arXiv:2309.00071). Factor 0 or 1 turns it off.
type YaRN struct {
	Factor            float64 `toml:"factor" help:"context extension factor; 0: no YaRN"`
	OriginalPositions int     `toml:"original_positions" help:"context length before the extension"`
	BetaFast          float64 `toml:"beta_fast" help:"leave frequencies with more rotations than this unchanged"`
	BetaSlow          float64 `toml:"beta_slow" help:"interpolate frequencies with fewer rotations than this"`
	MScale            float64 `toml:"mscale" help:"attention factor of the rotary tables"`
	MScaleAllDim      float64 `toml:"mscale_all_dim" help:"attention factor of the softmax scale"`
}

// Enabled reports whether the extension changes anything.
func (y YaRN) Enabled() bool { return y.Factor > 1 }

// The router's score functions.
const (
	Sigmoid = "sigmoid"
	Softmax = "softmax"
	// the root of log(1 + exp(x))
	SqrtSoftplus = "sqrtsoftplus"
)

// KeyDim returns the dimension of one head's query and key.
func (c Config) KeyDim() int { return c.NopeDim + c.RopeDim }

// IsDense reports whether layer i has a dense FFN.
func (c Config) IsDense(i int) bool { return i < c.DenseLayers }

// isHash reports whether the experts of a token in layer i come from a table.
func (c Config) isHash(i int) bool { return i >= c.DenseLayers && i < c.DenseLayers+c.HashLayers }

// MoELayers returns the number of layers with routed experts.
func (c Config) MoELayers() int { return c.AllLayers() - c.DenseLayers }

// maxInter is the maximum width of a feed-forward network. The limits on sizes are far above any
// real model. They keep the parameter count below 2^61, within an int64.
const maxInter = 1 << 18

// size is a positive number of a configuration.
type size struct {
	name        string
	value, most int
}

func (s size) validate(must func(bool, string, ...any)) {
	must(s.value > 0 && s.value <= s.most, "model.%s is %d: give 1 to %d", s.name, s.value, s.most)
}

func (c Config) validateStreams(must func(bool, string, ...any)) {
	if c.ResidualStreams == 0 {
		return
	}
	must(c.ResidualStreams > 1 && c.ResidualStreams <= 16, "model.streams is %d: give 0 (a single residual stream) or 2 to 16", c.ResidualStreams)
	must(c.SinkhornIterations > 0 && c.SinkhornIterations <= 1000, "model.sinkhorn_iterations is %d: give 1 to 1000 with model.streams", c.SinkhornIterations)
	must(atLeast(0, c.StreamEps) && c.StreamEps > 0, "model.stream_eps is %g: give a positive number with model.streams", c.StreamEps)
	must(c.MTPLayers == 0, "model.mtp_layers is %d: a model with model.streams has no multi-token prediction here, give 0", c.MTPLayers)
}

func (y YaRN) validate(must func(bool, string, ...any)) {
	must(y.Factor == 0 || atLeast(1, y.Factor), "model.yarn.factor is %g: give 0 (no YaRN) or 1 or more", y.Factor)
	if !y.Enabled() {
		return
	}
	must(y.OriginalPositions > 0, "model.yarn.original_positions is %d: give the context length before the extension", y.OriginalPositions)
	must(y.BetaSlow > 0 && atLeast(y.BetaSlow, y.BetaFast), "model.yarn.beta_fast is %g and model.yarn.beta_slow %g: give positive numbers, fast not below slow", y.BetaFast, y.BetaSlow)
	must(atLeast(0, y.MScale), "model.yarn.mscale is %g: give 0 or more", y.MScale)
	must(atLeast(0, y.MScaleAllDim), "model.yarn.mscale_all_dim is %g: give 0 or more", y.MScaleAllDim)
}

// atLeast reports whether x is finite and at least least.
func atLeast(least, x float64) bool { return x >= least && !math.IsInf(x, 0) }

// AllLayers returns the number of layers, including those that predict further ahead.
func (c Config) AllLayers() int { return c.Layers + c.MTPLayers }

// base returns the settings that all flavors share.
func base() Config {
	return Config{
		Groups: 1, TopKGroups: 1,
		ScoreFunc: Sigmoid, NormTopK: true, RouteScale: 1,
		BiasSpeed: 1e-3, MTPWeight: 0.3,
		NormEps: 1e-6, RopeTheta: 10000, MaxPositions: 16384,
	}
}
