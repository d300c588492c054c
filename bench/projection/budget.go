package projection

// From costs to a budget for people: each term with its formula, numbers and sources.

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"spmoe/moe"
)

// tables are the kernels' efficiencies by name.
var tables = sync.OnceValue(func() map[string]*kernels {
	return map[string]*kernels{"b200": newKernels(data().b200), "h200": newKernels(data().h200)}
})

// Project returns the budget of a run with these settings of the parameters.
func Project(r Run, set Settings) (Budget, error) {
	e, err := newEstimator(r, set)
	if err != nil {
		return Budget{}, err
	}
	memory := r.memory(e.model)
	if memory.Total() > e.gpu.Memory.Value {
		return Budget{}, r.suggest(e.model, fmt.Sprintf("the layout needs %.0f GB a GPU (weights %.0f, gradients %.0f, optimizer %.0f, activations %.0f, reserve %.0f), the %s has %.0f",
			memory.Total(), memory.Weights, memory.Gradients, memory.Optimizer, memory.Activations, memory.Reserve, e.gpu.Name, e.gpu.Memory.Value))
	}
	return e.budget(memory), nil
}

// throughput returns Project's tokens/s only, for samples and sweeps. The run must have passed
// Check.
func throughput(r Run, set Settings) (float64, error) {
	e, err := newChecked(r, set)
	if err != nil {
		return 0, err
	}
	c := e.total()
	return 1e3 / c.sum(), nil
}

func (e *estimator) budget(memory Memory) Budget {
	c := e.total()
	b := Budget{Run: e.run, MS: c.sum(), Memory: memory, Parameters: ParameterHash(), AllToAll: e.exchange()}
	for s, ms := range c {
		if ms != 0 {
			b.Terms = append(b.Terms, e.term(Symbol(s), ms))
		}
	}
	b.AllToAll.Total *= float64(e.model.mainMoE())
	b.Tokens = 1e3 / b.MS
	b.Step = b.MS / 1e3 * e.run.tokensPerGPU()
	b.FLOPs, b.Convention = e.model.TrainFLOPs(e.run.Seq, e.stack.Causal), "causal attention, MTP counted"
	if !e.stack.Causal {
		b.Convention = "all scores, MTP not counted"
	}
	b.TFLOPS = b.FLOPs * b.Tokens / 1e12
	b.MFU = b.TFLOPS / e.gpu.BF16.Value
	b.HFU = (b.FLOPs + e.repeated()) * b.Tokens / 1e12 / e.gpu.BF16.Value
	for name, d := range e.far {
		b.Extrapolated = append(b.Extrapolated, fmt.Sprintf("%s: 2^%.1f away from the nearest measured shape", name, d))
	}
	slices.Sort(b.Extrapolated)
	return b
}

// repeated returns the FLOPs per token that a step computes in addition to those of the convention,
// for recomputation and for duplicated tokens. Scores are counted as the convention counts them.
func (e *estimator) repeated() (sum float64) {
	scores := 0.0
	for _, b := range slices.Concat(e.model.Blocks(), e.model.mtp()) {
		for _, l := range b.Linears {
			again := e.repeats(l)
			if l.Part == moe.Routed {
				again += (3 + again) * (e.repetitions() - 1)
			}
			sum += again * flops(l) * float64(b.Layers)
		}
		if b.Scores {
			scores += float64(b.Layers) * e.model.attentionFLOPs(e.run.Seq)
		}
	}
	if !e.stack.Causal {
		scores *= 2
	}
	return sum + e.again("core_attn")*scores
}

// linkKind returns the kind of the NIC's bandwidth, if it is used, or of NVLink's.
func (e *estimator) linkKind(nic bool) Kind {
	if nic {
		return e.gpu.NIC.Kind
	}
	return e.gpu.NVLink.Kind
}

// stretched returns the softest kind of the terms that the pipeline stretches.
func (e *estimator) stretched() Kind {
	k := Exact
	for s, ms := range e.total() {
		if s := Symbol(s); ms != 0 && s != Pipeline && s != DataComm && s != Update {
			k = softest(k, e.term(s, ms).Kind)
		}
	}
	return k
}

// term describes one line of the budget.
func (e *estimator) term(s Symbol, ms float64) Term {
	t := Term{Symbol: s, MS: ms}
	m, c := e.model, e.model.Count(e.run.Seq)
	passes := 3 + e.full()
	layers := m.mainMoE() + m.MTPLayers*max(1, m.MTPDepth)
	param := func(i int) string { return fmt.Sprintf("%.4g", e.set[i]) }
	switch s {
	case Grouped:
		f := c.Routed * passes * e.repetitions() * e.to.Imbalance * float64(layers) / float64(max(m.mainMoE(), 1))
		t.Kind = softest(kindOf(gemmScale, groupedScale), e.to.Kind)
		t.Formula = fmt.Sprintf("d·I·passes·F_G / R = %.0f · %.3f · %.0f · %.2f GF per token / %.0f TFLOP/s at %.0f rows per expert", e.repetitions(), e.to.Imbalance, passes, c.Routed/1e9, f/ms/1e9, e.rowsPerExpert())
		t.Source = e.table.list[0].Source
		if e.quantized(moe.Routed) && !e.table.dtype8 {
			t.Formula += fmt.Sprintf(", s = %.2f at %.0f rows per GPU", e.speedup(moe.Routed), e.rowsPerRank())
			t.Source += "; " + data().parameters.Net.Source
		}
	case Dense:
		t.Kind = kindOf(gemmScale)
		t.Formula = fmt.Sprintf("passes·F_D / R, F_D = %.2f GF per token (head not computed again), mean R = %.0f TFLOP/s over the shapes", (c.Other+c.MTP)/1e9, 3*(c.Other+c.MTP)/ms/1e9)
		t.Source = e.table.list[0].Source
	case Attention:
		t.Kind = softest(e.flash.Kind, kindOf(attentionScale))
		if e.stack.DocumentMask {
			t.Kind = Assumed
		}
		t.Formula = fmt.Sprintf("(%.0f/R_f + 2.5/R_b)·density·F_F = F_F %.2f GF causal · %.2f, R_f = %.0f and R_b = %.0f TFLOP/s", 1+e.again("core_attn"), c.Attention/1e9, e.fill, e.flash.Forward*e.gpu.BF16.Value, e.flash.Backward*e.gpu.BF16.Value)
		t.Source = e.flash.Source
	case Casts:
		t.Kind, t.Source = kindOf(castShare), Parameters()[castShare].Source
		t.Formula = fmt.Sprintf("bytes of inputs and gradients, read once and written both ways / (%s · %.2f TB/s)", param(castShare), e.gpu.HBM.Value)
	case Shuffle:
		t.Kind, t.Source = kindOf(shuffleShare, touchesScale), e.stack.Source
		t.Formula = fmt.Sprintf("%d layers · (%.0f·%.0f + %.0f) touches · %d·%.0f B / (%s · %.2f TB/s)", layers, e.stack.ForwardTouches, 1+e.full(), e.stack.BackwardTouches, m.TopK, m.RowBytes("bf16"), param(shuffleShare), e.gpu.HBM.Value)
	case Rowwise:
		t.Kind, t.Source = kindOf(rowwiseShare), Parameters()[rowwiseShare].Source
		t.Formula = fmt.Sprintf("bytes of norms, residuals, rotary embedding, SwiGLU, logits / (%s · %.2f TB/s)", param(rowwiseShare), e.gpu.HBM.Value)
		if m.Mamba != nil || m.Delta != nil {
			t.Kind, t.Formula = Assumed, t.Formula+fmt.Sprintf(" and of scans / (%s · %.2f TB/s)", param(scanShare), e.gpu.HBM.Value)
		}
	case AllToAll:
		x := e.exchange()
		t.Kind = softest(e.to.Kind, Published, e.linkKind(e.nodes() > 1))
		t.Formula = fmt.Sprintf("%d layers · %d all-to-alls · %.0f B per token (%.0f B between nodes) = %.4f ms per token, %.0f %% hidden; d = %.0f, I = %.3f", layers, x.Operations, x.Bytes, x.NIC, x.Total*float64(layers), 100*x.Hidden, e.repetitions(), e.to.Imbalance)
		t.Source = Parameters()[nicA2ALimit].Source
		if e.stack.Dedup {
			t.Source = Parameters()[nicDedup].Source
		}
		if e.nodes() == 1 {
			t.Source = strings.Join([]string{e.gpu.NVLinkAllToAll.Source, e.gpu.NVLinkDedup.Source}, "; ")
		}
	case TensorComm:
		t.Kind, t.Source = e.gpu.NVLinkCollective.Kind, e.gpu.NVLinkCollective.Source
		t.Formula = fmt.Sprintf("layers · %.0f · 2h·(TP-1) / (%.2f · %.0f GB/s), TP = %d; keys and values of CP = %d", 8+4*e.full(), e.gpu.NVLinkCollective.Value, e.gpu.NVLink.Value, e.run.TP, e.run.cp())
	case Host:
		t.Kind, t.Source = softest(e.stack.Kind, kindOf(launchMicros)), Parameters()[launchMicros].Source
		t.Formula = fmt.Sprintf("layers · %.0f passes · %.3g row-wise kernels · %s us · %d GPUs / %d tokens of a microbatch, and the wait for calls", e.kernelPasses(), e.stack.Launches*launched[e.stack.Graphs], param(launchMicros), e.run.TP, e.run.MicroBatch*e.run.Seq)
	case Residual:
		t.Kind, t.Source = Calibrated, "fitted on 651 tokens/s alone"
		t.Formula = "1000/651 less all other terms at that configuration"
	case Pipeline:
		t.Kind, t.Source = e.stretched(), "lists of "+e.run.schedule()+"; the time that it stretches"
		t.Formula = fmt.Sprintf("sum · (uneven stages · (1 + idle/busy) - 1), PP = %d, VP = %d, M = %.0f, bubble %.1f %%", e.run.PP, e.run.VP, e.run.microBatches(), 100*e.run.bubble())
	case DataComm:
		t.Kind, t.Source = softest(kindOf(nicCollective), e.linkKind(float64(e.run.GPUs) > e.gpu.Domain.Value)), Parameters()[nicCollective].Source
		t.Formula = fmt.Sprintf("6 B per parameter of the GPU's stage (8 B if sharded) / bandwidth, %.0f %% hidden, over %.0f tokens per step and GPU", 100*e.stack.DPHidden, e.run.tokensPerGPU())
		if e.stack.Copies {
			t.Formula += fmt.Sprintf("; and %s B of copies / (%s · %.2f TB/s)", param(shardBytes), param(rowwiseShare), e.gpu.HBM.Value)
		}
	case Update:
		t.Kind, t.Source = kindOf(optimizerBytes), Parameters()[optimizerBytes].Source
		t.Formula = fmt.Sprintf("%.2f G parameters / %d GPUs · %s B / (%s · %.2f TB/s) over %.0f tokens", c.Total/1e9, e.run.GPUs, param(optimizerBytes), param(rowwiseShare), e.gpu.HBM.Value, e.run.tokensPerGPU())
	}
	return t
}
