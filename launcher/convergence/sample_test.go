package convergence

import (
	"math"
	"math/rand/v2"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
)

// recipe is how an arm of a sample behaves.
type recipe struct {
	name, about string
	bias        float64 // of its final loss, relative
	sqnr        float64 // dB; 0: it quantizes nothing
	saturated   float64 // share
	speed       float64 // tokens a second
}

var sampleRecipes = []recipe{
	{"bf16", "BF16 storage and products", 0, 0, 0, 11800},
	{"mxfp8", "MXFP8 in forward, dgrad and wgrad of every linear and expert", 0.0006, 31.2, 0, 9650},
	{"mxfp8-wgrad-bf16", "MXFP8 but for weight gradients", 0.0002, 31.4, 0, 10100},
}

// sample makes up a comparison as a small model on two cores might give it.
func sample(recipes []recipe, seeds, steps int) Result {
	r := Result{
		Command: "launcher -np 8 compare --precision bf16,mxfp8,mxfp8-wgrad-bf16 --steps 1500 --seeds 5", Version: "1f2e3d4",
		Machines: []Machine{{CPU: "AMD EPYC 9R14", Tier: "avx512bf16", Cores: 2}},
		Setup: Setup{
			Flavor: "debug", Parameters: 6_241_536, Steps: steps, Batch: 16, Seq: 128, Ranks: 8, Jobs: 1, Tail: max(10, steps/20),
			Config: "flavor = \"debug\"\nsteps = 1500\nprecision = \"bf16\"\n",
		},
		Margin: 0.005,
	}
	for s := range seeds {
		r.Setup.Seeds = append(r.Setup.Seeds, uint64(s+1))
	}
	for i, c := range recipes {
		arm := Arm{Name: c.name, About: c.about, Speed: c.speed, Times: sampleTimes(c)}
		for s := range seeds {
			arm.Runs = append(arm.Runs, sampleRun(c, i, s, r.Setup))
		}
		if i == 0 {
			arm.Verdict = Baseline
		} else {
			judge(&arm, r.Arms[0], r.Margin)
			for step := 0; step <= steps; step += max(steps/15, 1) {
				for layer := 1; layer < 6; layer++ {
					share := 1 - (0.07+0.01*float64(i))*math.Sqrt(float64(step)/float64(steps))*(0.7+0.12*float64(layer))
					arm.Agreement = append(arm.Agreement, Agreement{Step: step, Layer: layer, Share: share})
				}
			}
		}
		r.Arms = append(r.Arms, arm)
	}
	train, heldOut := ends(r.Arms[0], seeds)
	r.Spread.Train, r.Spread.HeldOut = spread(train), spread(heldOut)
	return r
}

func sampleRun(c recipe, arm, seed int, setup Setup) Run {
	data := rand.New(rand.NewPCG(uint64(seed), 1))               // the same for all arms
	noise := rand.New(rand.NewPCG(uint64(seed), 2+uint64(arm)))  // the arm's own
	level := 1.62 * (1 + 0.006*data.NormFloat64())               // of this seed
	bias := c.bias + 0.0007*noise.NormFloat64()*min(1, c.sqnr+1) // of this run
	log := new(record.Log)
	run := Run{Seed: uint64(seed + 1), Speed: c.speed * (1 + 0.01*noise.NormFloat64()), Log: log}
	course := func(step int) float64 {
		t := float64(step) / float64(setup.Steps)
		return level + 2.4*math.Exp(-t/0.02) + 1.5*math.Exp(-t/0.2) - 0.12*max(0, t-0.5)
	}
	tail := 0.0
	for step := 1; step <= setup.Steps; step++ {
		t := float64(step) / float64(setup.Steps)
		loss := (course(step) + 0.05*data.NormFloat64()) * (1 + bias*min(1, 3*t) + 0.002*noise.NormFloat64())
		if step > setup.Steps-setup.Tail {
			tail += loss / float64(setup.Tail)
		}
		norm := (0.35 + 3*math.Exp(-t/0.03)) * math.Exp(0.12*data.NormFloat64()+0.03*noise.NormFloat64())
		log.Steps = append(log.Steps, record.Step{
			Step: step, Loss: record.Number(loss), GradNorm: record.Number(norm), LR: 3e-3 * min(1, 20*t), Seconds: 2048 / run.Speed,
			Imbalance: 1.25 + 1.9*math.Exp(-t/0.06) + 0.04*math.Abs(noise.NormFloat64()),
		})
	}
	run.Train = record.Number(tail)
	every := max(setup.Steps/15, 1)
	for step := 0; step <= setup.Steps; step += every {
		t := float64(step) / float64(setup.Steps)
		loss := (course(step) + 0.09) * (1 + bias*min(1, 3*t) + 0.0003*noise.NormFloat64())
		log.Evals = append(log.Evals, record.Eval{Step: step, Loss: record.Number(loss), Sequences: 64})
		run.HeldOut = record.Number(loss)
		for layer := 1; layer < 6; layer++ {
			log.Loads = append(log.Loads, record.Load{Step: step, Layer: layer, Tokens: make([]int64, 16)})
		}
		if c.sqnr > 0 {
			log.Quantized = append(log.Quantized, sampleQuantized(c, arm, max(step, 1), noise)...)
		}
	}
	log.Times = sampleTimes(c)
	log.Done = &record.Done{Step: setup.Steps, HeldOut: run.HeldOut}
	return run
}

func sampleQuantized(c recipe, arm, step int, noise *rand.Rand) (list []record.Quantized) {
	for layer := range 6 {
		linears := []string{"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj", "self_attn.kv_b_proj", "self_attn.o_proj"}
		if layer == 0 {
			linears = append(linears, "mlp.gate_up_proj", "mlp.down_proj")
		} else {
			linears = append(linears, "shared_experts.gate_up_proj", "shared_experts.down_proj", "experts.gate_up_proj", "experts.down_proj")
		}
		for i, name := range linears {
			for k, operand := range operands {
				dB := c.sqnr - 0.9*float64(k) - 0.15*float64(layer) - 0.3*float64(i%3) - 0.4*math.Log10(float64(step)) + 0.15*noise.NormFloat64()
				n := int64(1 << 18)
				list = append(list, record.Quantized{
					Step: step, Layer: layer, Linear: name, Tensor: operand.kind, Format: "e4m3", Elements: n,
					Signal: 1000, Noise: record.Number(1000 / math.Pow(10, dB/10)), Saturated: int64(c.saturated * float64(n)),
					Flushed: int64(float64(n) * (0.0004 + 0.0001*float64(arm) + 0.0007*float64(k)) * (1 + 0.2*noise.Float64())),
				})
			}
		}
	}
	return list
}

func sampleTimes(c recipe) *record.Times {
	step := 2048 / c.speed
	families := map[string]float64{
		"attention": 0.11 * step, "row operations": 0.08 * step, "router": 0.01 * step, "loss": 0.05 * step, "exchange": 0.03 * step,
		"collectives": 0.05 * step, "optimizer": 0.07 * step, "waiting": 0.06 * step, "rest": 0.02 * step,
	}
	format := "bf16 "
	if c.sqnr > 0 {
		format = "mx "
		families["quantize"] = 0.09 * step
		step *= 0.91 / 1
	}
	for _, pass := range []string{"forward", "dgrad", "wgrad"} {
		families[format+pass], families[format+"grouped "+pass] = 0.06*step, 0.11*step
	}
	return &record.Times{Steps: 1495, Seconds: 2048 / c.speed, Families: families}
}

func ends(arm Arm, n int) (train, heldOut []float64) {
	for _, run := range arm.Runs[:n] {
		train, heldOut = append(train, float64(run.Train)), append(heldOut, float64(run.HeldOut))
	}
	return train, heldOut
}

func judge(arm *Arm, base Arm, margin float64) {
	train, heldOut := ends(*arm, len(arm.Runs))
	baseTrain, baseHeldOut := ends(base, len(arm.Runs))
	d := design.Fixed(margin, len(arm.Runs))
	arm.Train, arm.HeldOut = difference(train, baseTrain, d), difference(heldOut, baseHeldOut, d)
	switch {
	case len(arm.Runs) < 2:
		arm.Verdict = Undecided
	case arm.Train.Within && arm.HeldOut.Within:
		arm.Verdict = Equivalent
	default:
		arm.Verdict = Undecided
	}
}
