package moe

import (
	"math"
	"strings"
	"testing"
)

// contains checks that err is there and says all the words.
func contains(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error lacks %q:\n%v", w, err)
		}
	}
}

func TestFlavorsAreValid(t *testing.T) {
	for _, f := range Flavors() {
		if err := f.Config.Validate(); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if got, err := FlavorByName(f.Name); err != nil || got != f.Config {
			t.Errorf("FlavorByName(%q) = %+v, %v", f.Name, got, err)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		edit  func(c *Config)
		words []string
	}{
		"vocab":                   {func(c *Config) { c.Vocab = 0 }, []string{"model.vocab is 0", "give 1 to"}},
		"vocab too large":         {func(c *Config) { c.Vocab = 1 << 40 }, []string{"model.vocab is 1099511627776", "give 1 to 16777216"}},
		"kv_rank":                 {func(c *Config) { c.KVRank = 0 }, []string{"model.kv_rank is 0"}},
		"rope_dim":                {func(c *Config) { c.RopeDim = 0 }, []string{"model.rope_dim is 0", "give 1 to"}},
		"odd rope_dim":            {func(c *Config) { c.RopeDim = 5 }, []string{"model.rope_dim is 5", "even"}},
		"too many dense_layers":   {func(c *Config) { c.DenseLayers = 3 }, []string{"model.dense_layers is 3", "0 to 2 (model.layers)"}},
		"odd kv_heads":            {func(c *Config) { sharedKeys(c); c.KVHeads = 3 }, []string{"model.kv_heads is 3", "divide model.heads, 4"}},
		"ranks of grouped keys":   {func(c *Config) { sharedKeys(c); c.KVRank = 12 }, []string{"model.kv_rank is 12", "give 0 and 0"}},
		"values of grouped keys":  {func(c *Config) { sharedKeys(c); c.ValueDim = 8 }, []string{"model.value_dim is 8", "nope_dim + model.rope_dim, 10"}},
		"negative nope_dim":       {func(c *Config) { sharedKeys(c); c.NopeDim = -2 }, []string{"model.nope_dim is -2"}},
		"latent norms":            {func(c *Config) { c.QKNorm = true }, []string{"model.qk_norm", "give model.kv_heads"}},
		"q_rank":                  {func(c *Config) { c.QRank = -4 }, []string{"model.q_rank is -4", "0 (no compression)"}},
		"keys of no indexer":      {func(c *Config) { c.IndexTopK = 4 }, []string{"model.index_heads is 0", "give its heads"}},
		"indexer without q_rank":  {func(c *Config) { choosing(c); c.QRank = 0 }, []string{"model.q_rank 0", "give kv_heads 0 and a q_rank"}},
		"index_dim":               {func(c *Config) { choosing(c); c.IndexDim = 2 }, []string{"model.index_dim is 2", "model.rope_dim, 4"}},
		"index_top_k":             {func(c *Config) { choosing(c); c.IndexTopK = 0 }, []string{"model.index_top_k is 0"}},
		"index_rope":              {func(c *Config) { choosing(c); c.IndexRope = "" }, []string{`model.index_rope is ""`, "half", "interleaved"}},
		"indexer_types":           {func(c *Config) { choosing(c); c.IndexerTypes = "SFF" }, []string{`"SFF"`, "each of the 3 layers", "first one F"}},
		"index_stage":             {func(c *Config) { choosing(c); c.IndexStage = "dense" }, []string{`"dense"`, "warmup or sparse"}},
		"index_weight":            {func(c *Config) { choosing(c); c.IndexWeight = -1 }, []string{"model.index_weight is -1"}},
		"warmup without a loss":   {func(c *Config) { choosing(c); c.IndexStage, c.IndexWeight = "warmup", 0 }, []string{"model.index_weight is 0", "positive"}},
		"attention":               {func(c *Config) { likeV4(c); c.Attention = "csa, dense" }, []string{`model.attention has "dense"`, "sliding, csa and hca"}},
		"window":                  {func(c *Config) { likeV4(c); c.Window = 0 }, []string{"model.window is 0"}},
		"csa_rate":                {func(c *Config) { likeV4(c); c.CSARate = 0 }, []string{"model.csa_rate is 0"}},
		"hca_rate":                {func(c *Config) { likeV4(c); c.HCARate = -1 }, []string{"model.hca_rate is -1"}},
		"o_groups":                {func(c *Config) { likeV4(c); c.OutputGroups = 3 }, []string{"model.o_groups is 3", "divide model.heads, 2"}},
		"o_rank":                  {func(c *Config) { likeV4(c); c.OutputRank = 0 }, []string{"model.o_rank is 0"}},
		"index_dim of entries":    {func(c *Config) { likeV4(c); c.IndexDim = 1 }, []string{"model.index_dim is 1", "model.rope_dim, 4"}},
		"index_rope of entries":   {func(c *Config) { likeV4(c); c.IndexRope = halfPairs }, []string{"model.index_rope", "remove them"}},
		"values of shared keys":   {func(c *Config) { likeV4(c); c.ValueDim = 4 }, []string{"model.value_dim is 4", "model.nope_dim + model.rope_dim, 10"}},
		"latent, too":             {func(c *Config) { likeV4(c); c.KVRank = 8 }, []string{"model.kv_rank is 8", "one head of keys"}},
		"compress_theta":          {func(c *Config) { likeV4(c); c.CompressTheta = 1 }, []string{"model.compress_theta is 1"}},
		"MTP of V4":               {func(c *Config) { likeV4(c); c.MTPLayers = 1 }, []string{"model.mtp_layers is 1", "give 0"}},
		"streams":                 {func(c *Config) { likeV4(c); c.ResidualStreams = 1 }, []string{"model.streams is 1", "2 to 16"}},
		"sinkhorn_iterations":     {func(c *Config) { likeV4(c); c.SinkhornIterations = 0 }, []string{"model.sinkhorn_iterations is 0"}},
		"stream_eps":              {func(c *Config) { likeV4(c); c.StreamEps = 0 }, []string{"model.stream_eps is 0"}},
		"hash_layers":             {func(c *Config) { likeV4(c); c.HashLayers = 3 }, []string{"model.hash_layers is 3", "0 to 2"}},
		"swiglu_limit":            {func(c *Config) { likeV4(c); c.SwiGLULimit = -1 }, []string{"model.swiglu_limit is -1"}},
		"mtp_layers":              {func(c *Config) { c.MTPLayers = 2 }, []string{"model.mtp_layers is 2", "0 or 1"}},
		"mtp_weight":              {func(c *Config) { c.MTPWeight = -0.5 }, []string{"model.mtp_weight is -0.5"}},
		"norm_eps":                {func(c *Config) { c.NormEps = 0 }, []string{"model.norm_eps is 0", "positive"}},
		"experts too many":        {func(c *Config) { c.Experts = 1 << 20 }, []string{"model.experts is 1048576", "1 to 16384"}},
		"top_k above experts":     {func(c *Config) { c.TopK = 9 }, []string{"model.top_k is 9", "1 to 8 (model.experts)"}},
		"score_func":              {func(c *Config) { c.ScoreFunc = "tanh" }, []string{`model.score_func is "tanh"`, "sigmoid, softmax or sqrtsoftplus"}},
		"route_scale":             {func(c *Config) { c.RouteScale = 0 }, []string{"model.route_scale is 0"}},
		"bias_speed":              {func(c *Config) { c.BiasSpeed = -1 }, []string{"model.bias_speed is -1"}},
		"balance_alpha":           {func(c *Config) { c.BalanceAlpha = -1 }, []string{"model.balance_alpha is -1"}},
		"groups":                  {func(c *Config) { c.Groups = 3 }, []string{"model.groups is 3", "divide model.experts, 8"}},
		"top_k_groups":            {func(c *Config) { c.Groups, c.TopKGroups = 4, 5 }, []string{"model.top_k_groups is 5", "1 to 4 (model.groups)"}},
		"top_k in too few groups": {func(c *Config) { c.Groups, c.TopK = 8, 2 }, []string{"model.top_k is 2", "1 groups", "hold 1 experts"}},
		"yarn.factor":             {func(c *Config) { c.YaRN.Factor = 0.5 }, []string{"model.yarn.factor is 0.5", "0 (no YaRN)"}},
		"yarn.original_positions": {func(c *Config) { stretched(c); c.YaRN.OriginalPositions = 0 }, []string{"model.yarn.original_positions is 0"}},
		"yarn.beta_slow":          {func(c *Config) { stretched(c); c.YaRN.BetaSlow = 0 }, []string{"model.yarn.beta_slow 0"}},
		"yarn.beta_fast":          {func(c *Config) { stretched(c); c.YaRN.BetaFast = 0.5 }, []string{"model.yarn.beta_fast is 0.5", "not below slow"}},
		"yarn.mscale_all_dim":     {func(c *Config) { stretched(c); c.YaRN.MScaleAllDim = inf }, []string{"model.yarn.mscale_all_dim is +Inf"}},
	} {
		t.Run(name, func(t *testing.T) {
			contains(t, with(tiny(), c.edit).Validate(), c.words...)
		})
	}
}

// What a model without routed experts does not use may have any value.
func TestValidateIgnoresUnusedFields(t *testing.T) {
	for name, edit := range map[string]func(c *Config){
		"routing of a dense model": func(c *Config) { c.DenseLayers, c.Experts, c.Groups, c.ScoreFunc = 2, 0, 0, "" },
		"dense width of none":      func(c *Config) { c.DenseLayers, c.DenseInter = 0, 0 },
		"yarn that is off":         func(c *Config) { c.YaRN = YaRN{Factor: 1, BetaFast: -1, MScale: -1} },
	} {
		if err := with(tiny(), edit).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The limits leave no room for an overflow: the largest valid model still has sensible counts.
func TestLargestModelCounts(t *testing.T) {
	c := tiny()
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter, c.MTPLayers = 1<<24, 1<<17, 1<<10, 1<<9, maxInter, 1
	c.Heads, c.QRank, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 1<<11, 1<<16, 1<<16, 1<<12, 1<<12, 1<<12
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts, c.MaxPositions = 1<<14, 1<<14, maxInter, 1<<10, 1<<26
	for _, dense := range []int{0, c.Layers / 2, c.Layers} {
		c.DenseLayers = dense
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		// The same in float64, the large terms only.
		expert := 3 * float64(c.Dim) * float64(c.ExpertInter)
		want := float64(c.MoELayers()) * float64(c.Experts) * expert
		n := c.Count()
		if got := float64(n.Routed); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%d dense layers: %g routed parameters, want %g", dense, got, want)
		}
		if n.Total < n.Routed || n.Total < n.Active || n.Active < 0 || n.Replicated < 0 || n.Ahead < 0 {
			t.Errorf("%d dense layers: counts overflow: %+v", dense, n)
		}
		if f := c.FLOPsPerToken(c.MaxPositions); !(f > 6*float64(n.Active)/2) {
			t.Errorf("%d dense layers: %g FLOPs per token with %d active parameters", dense, f, n.Active)
		}
	}
}

// A model of another size is like a built-in one with its kind of attention.
func TestFlavorLike(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"debug":        func(c *Config) { c.Vocab = 1570 },
		"debug-sparse": func(c *Config) { c.Vocab = 900 },
		"debug-v4":     func(c *Config) { c.Experts, c.SwiGLULimit = 32, 0 },
	} {
		c := mustFlavor(t, name).Config
		if change(&c); FlavorLike(c).Name != name {
			t.Errorf("%s with other sizes is like %s", name, FlavorLike(c).Name)
		}
	}
}
