package moe

// The settings with which a run trains each flavor.

// Training holds the settings of a run that suit one model and not another. A run has further
// settings, with the same default for all models.
type Training struct {
	Steps         int
	Seq           int     // tokens per sequence
	Batch         int     // sequences per optimizer step of all ranks; a multiple of 16
	MicroBatch    int     // sequences per rank in one pass; 0: all
	EvalSequences int     // validation sequences per evaluation
	LR            float64 // peak learning rate
	Warmup        int     // steps, at most a tenth of Steps
	DecayFrac     float64 // share of Steps at the end over which the rate decays
	Decay         string  // shape of the decay
	MinFactor     float64 // final rate as a share of the peak
	Moments       string  // type of AdamW's moments; empty: MomentsFP32
	ChainPasses   bool    // see Model
}

// The types of AdamW's moments.
const (
	MomentsFP32 = "fp32"
	MomentsBF16 = "bf16"
)

// All flavors train with AdamW, betas 0.9 and 0.95, weight decay 0.1 and gradients clipped to a
// norm of 1. So did DeepSeek-V2 and V3 (arXiv:2405.04434, 3.1.2; arXiv:2412.19437, 4.2).

// trainDebug trains in a minute. The rate suits a model and a run of this size only.
func trainDebug() Training {
	return Training{
		Steps: 360, Seq: 128, Batch: 16, EvalSequences: 32,
		LR: 3e-3, Warmup: 20, DecayFrac: 0.5, Decay: "linear", MinFactor: 0.1,
	}
}

// The three smallest flavors see 20 tokens per parameter (Hoffmann et al., arXiv:2203.15556).

// train300K sees 6 million tokens. Its rate was measured (bench/results/convergence).
func train300K() Training {
	return Training{
		Steps: 1500, Seq: 128, Batch: 32, EvalSequences: 256,
		LR: 8e-3, Warmup: 75, DecayFrac: 0.3, Decay: "linear", MinFactor: 0.1,
	}
}

// rateUntuned is the rate of 1M and 3M, which no measurement chose.
const rateUntuned = 2e-3

// train1M sees 20 million tokens.
func train1M() Training {
	t := train300K()
	t.Steps, t.Batch, t.Warmup, t.LR = 2400, 64, 120, rateUntuned
	return t
}

// train3M sees 54 million tokens.
func train3M() Training {
	t := train300K()
	t.Steps, t.Batch, t.Warmup, t.LR = 3300, 128, 165, rateUntuned
	return t
}

// trainWide sees 2 tokens per parameter in few steps, because pairs of runs drift apart step by
// step. Sequences have two blocks of 128, because gradients of weights are summed within each
// sequence first. Its rate was not tuned.
func trainWide() Training {
	t := train300K()
	t.Steps, t.Seq, t.EvalSequences, t.Warmup, t.LR = 616, 256, 96, 31, 1e-3
	return t
}

// trainSmall sees 16 million tokens, in two to three hours on two cores. Its rate was measured with
// 75 of 1,500 steps of warm-up (bench/results/convergence/small).
func trainSmall() Training {
	return Training{
		Steps: 2000, Seq: 512, Batch: 16, EvalSequences: 64,
		LR: 1e-3, Warmup: 100, DecayFrac: 0.3, Decay: "linear", MinFactor: 0.1,
	}
}

// The rates of 500M and 3B lie on the power law through the rates of small (29.9 million active
// parameters, 1e-3) and of DeepSeek-V2-Lite (2.66 billion, 4.2e-4): 1e-3·(active/29.9e6)^-0.193.
// The schedule is small's.

// train500M sees 10 million tokens.
func train500M() Training {
	t := trainSmall()
	t.Steps, t.Seq, t.MicroBatch, t.EvalSequences = 600, 1024, 1, 32
	t.LR, t.Warmup = 7.6e-4, 60
	return t
}

// train3B sees 66 million tokens.
func train3B() Training {
	t := trainSmall()
	t.Steps, t.Seq, t.Batch, t.MicroBatch = 1000, 1024, 64, 1
	t.LR = 6.2e-4
	return t
}

// train16B has DeepSeek-V2-Lite's published rate and warm-up (arXiv:2405.04434, B.1), on batches of
// a million tokens and 21 billion tokens in all. Published are 4,608 sequences of 4,096 tokens and
// 5.7 trillion tokens.
//
// The published rates fall in two steps near the end (V2-Lite, V2) or along a cosine to a tenth
// (V3). A run of 20,000 steps decays linearly to a tenth instead, as the smaller flavors do.
func train16B() Training {
	t := trainSmall()
	t.Steps, t.Seq, t.Batch, t.MicroBatch = 20000, 4096, 256, 1
	t.LR, t.Warmup = 4.2e-4, 2000
	return t
}

// train30B has the rate of that power law, on the batches of 16B. Qwen3's own is not published.
func train30B() Training {
	t := train16B()
	t.LR = 4e-4
	return t
}

// train236B has DeepSeek-V2's published rate and warm-up (arXiv:2405.04434, 3.1.2), on batches of
// two million tokens. Published are 2,304 to 9,216 sequences of 4,096 tokens.
func train236B() Training {
	t := train16B()
	t.Batch, t.LR = 512, 2.4e-4
	return t
}

// train671B has DeepSeek-V3's published rate and warm-up (arXiv:2412.19437, 4.2), on batches of two
// million tokens. Published are 3,072 to 15,360 sequences of 4,096 tokens. The moments are BF16, as
// published (3.3.3).
func train671B() Training {
	t := train16B()
	t.Batch, t.LR, t.Moments = 512, 2.2e-4, MomentsBF16
	return t
}
