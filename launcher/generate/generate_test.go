package generate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// tiny is a model of letters: its texts are not the same for long.
func tiny() moe.Config {
	cfg, err := moe.FlavorByName("debug")
	if err != nil {
		panic(err)
	}
	cfg.Dim, cfg.Layers, cfg.DenseInter, cfg.Heads, cfg.KVRank, cfg.NopeDim, cfg.RopeDim, cfg.ValueDim = 32, 2, 64, 2, 32, 16, 8, 32
	cfg.Experts, cfg.TopK, cfg.ExpertInter, cfg.MaxPositions, cfg.Vocab = 8, 2, 32, 512, 300
	return cfg
}

// build returns one rank's generator with weights so large that the context matters.
func build(c *collective.Comm, cfg moe.Config, precision string) (*Generator, error) {
	p, err := moe.PrecisionByName(precision)
	if err != nil {
		return nil, err
	}
	m, err := moe.NewInference(cfg, p, 1, c, nil)
	if err != nil {
		return nil, err
	}
	ex := tensor.NewExec()
	for _, g := range m.Groups {
		for _, param := range g.Params {
			values := tensor.New(tensor.FP32, param.Len())
			param.Fill(values.F32(), 0, 5)
			if strings.Contains(param.Name, "layers") && len(param.Dims) == 2 {
				tensor.Scale(values.F32(), 8, values.F32())
			}
			tensor.Convert(ex, param.Work.Reshape(param.Len()).Mat(), values.Mat())
		}
		g.Refresh(ex)
	}
	return &Generator{Ex: ex, Comm: c, Peers: c, Model: m, Tokenizer: datasets.Bytes{}}, nil
}

// options are those of tests that do not care.
func options() Options {
	return Options{Sampling: Sampling{Temperature: 0.9, TopP: 0.95, Seed: 3}, MaxTokens: 20, Context: 64, Endless: true}
}

// run continues prompts on some ranks and returns the texts, of which all ranks must have the same.
// edit may change a generator.
func run(t *testing.T, ranks int, precision string, o Options, edit func(g *Generator), prompts ...string) []Text {
	t.Helper()
	texts, _ := runIn(t, context.Background(), ranks, precision, o, edit, prompts...)
	return texts
}

func runIn(t *testing.T, ctx context.Context, ranks int, precision string, o Options, edit func(g *Generator), prompts ...string) ([]Text, Timing) {
	t.Helper()
	if err := Check(tiny(), datasets.Bytes{}, prompts, o); err != nil {
		t.Fatal(err)
	}
	all := make([][]Text, ranks)
	timings := make([]Timing, ranks)
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		g, err := build(c, tiny(), precision)
		if err != nil {
			return err
		}
		if edit != nil {
			edit(g)
		}
		all[c.Rank()], timings[c.Rank()], err = g.Run(ctx, prompts, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank, texts := range all {
		equal(t, fmt.Sprintf("rank %d of %d", rank, ranks), texts, all[0])
	}
	return all[0], timings[0]
}

func equal(t *testing.T, what string, got, want []Text) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b Text) bool {
		return a.Text == b.Text && a.Reason == b.Reason && slices.Equal(a.Tokens, b.Tokens) && a.PromptTokens == b.PromptTokens && a.Index == b.Index
	}) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// A text is the same on any number of ranks, and whatever other texts there are.
func TestTextsAreSeparate(t *testing.T) {
	var prompts []string
	for i := range 40 { // more than are computed at the same time
		prompts = append(prompts, strings.Repeat(string(rune('a'+i%26)), 1+i%7)+fmt.Sprint(i))
	}
	prompts[5] = ""
	for _, precision := range []string{"fp32", "bf16", "mxfp8"} {
		t.Run(precision, func(t *testing.T) {
			want := run(t, 1, precision, options(), nil, prompts...)
			for _, ranks := range []int{2, 4} {
				equal(t, fmt.Sprintf("%d ranks", ranks), run(t, ranks, precision, options(), nil, prompts...), want)
			}
			for i, prompt := range prompts[:6] {
				several := make([]string, i+1) // whose last one has the same number
				for j := range several {
					several[j] = "x"
				}
				several[i] = prompt
				got := run(t, 1+i%2, precision, options(), nil, several...)
				equal(t, fmt.Sprintf("text %d of %d", i, len(several)), got[i:], want[i:i+1])
			}
			seen := map[string]bool{}
			for _, text := range want {
				seen[text.Text] = true
				if len(text.Tokens) != 20 || text.Reason != Length || text.PromptTokens != max(len(prompts[text.Index]), 1) {
					t.Errorf("%+v", text)
				}
			}
			if len(seen) < len(want) {
				t.Errorf("%d texts of %d are different", len(seen), len(want))
			}
		})
	}
}

// The tokens of one step are those of a pass over the whole text: greedy texts of a trained model
// are what full recomputation gives, in BF16 but for scores that are closer than rounding.
func TestGreedy(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		t.Run(dtype.String(), func(t *testing.T) {
			c, ex := collective.NewWorld(1).Comm(0), tensor.NewExec()
			cfg := tiny()
			if dtype == tensor.BF16 {
				cfg.TopK = cfg.Experts // no choice that rounding could change
			}
			m := trained(t, c, ex, cfg, dtype)
			g := &Generator{Ex: ex, Comm: c, Peers: c, Model: m, Tokenizer: datasets.Bytes{}}
			o := Options{Sampling: Sampling{TopP: 1}, MaxTokens: 130, Context: 512, Endless: true}
			prompts := []string{"rank 1 ", "the ", strings.Repeat("sends rows. ", 24)} // the last in two parts
			texts, _, err := g.Run(context.Background(), prompts, o)
			d, failed := m.NewDecoder(ex, o.Context)
			if err := cmp.Or(err, failed); err != nil {
				t.Fatal(err)
			}
			differ := 0
			for i, text := range texts {
				all := append(datasets.Bytes{}.Encode([]byte(prompts[i])), text.Tokens...)
				if len(text.Tokens) != 130 {
					t.Errorf("text %d: %d tokens", i, len(text.Tokens))
				}
				for n, token := range text.Tokens {
					scores, err := d.Extend(ex, d.NewCache(len(all)), all[:text.PromptTokens+n])
					if err != nil {
						t.Fatal(err)
					}
					best, _ := (&sampler{}).draw(scores[:256], 0, 0)
					if best == token {
						continue
					}
					differ++
					if gap := scores[best] - scores[token]; dtype == tensor.FP32 || gap > greedyGap {
						t.Errorf("text %d, token %d is %d, by full recomputation %d, better by %g", i, n, token, best, gap)
					}
				}
			}
			t.Logf("%d tokens differ; a text: %q", differ, texts[0].Text)
		})
	}
}

// greedyGap bounds the gap, in nats, between two scores that BF16 may order the other way around.
const greedyGap = 0.15

// trained returns a model after some steps on simple text.
func trained(t *testing.T, c *collective.Comm, ex *tensor.Exec, cfg moe.Config, dtype tensor.DType) *moe.Model {
	t.Helper()
	const seq, batch = 64, 8
	m, err := moe.New(cfg, moe.Unquantized(dtype), 512, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := optim.New(ex, m.Groups, c, optim.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8})
	o.ClipNorm = 1
	if err := o.Init(1); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i := range 200 {
		fmt.Fprintf(&lines, "rank %d sends %d rows. ", i*7%4, i*i%10)
	}
	text := datasets.Bytes{}.Encode([]byte(lines.String()))
	for step := range 60 {
		b := moe.Batch{Seq: seq, GlobalSequences: batch}
		for i := range batch {
			at := (step*batch + i) * 37 % (len(text) - seq - 1)
			b.Inputs, b.Targets = append(b.Inputs, text[at:at+seq]...), append(b.Targets, text[at+1:at+seq+1]...)
		}
		if _, err := m.Train(ex, b); err != nil {
			t.Fatal(err)
		}
		norm, err := o.Reduce()
		if err == nil {
			err = o.Apply(5e-3, norm)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Texts end for the reason that they should, alike in a batch and on several ranks.
func TestReasons(t *testing.T) {
	with := func(edit func(o *Options)) Options {
		o := options()
		edit(&o)
		return o
	}
	base := run(t, 1, "fp32", options(), nil, "abc")[0]
	stop := base.Text[7:9]
	before, _, _ := strings.Cut(base.Text, stop)
	first := base.Tokens[slices.Index(base.Tokens, base.Tokens[10])]
	for name, c := range map[string]struct {
		o      Options
		edit   func(g *Generator)
		reason Reason
		text   string
	}{
		"length":      {with(func(o *Options) { o.MaxTokens = 5 }), nil, Length, string(datasets.Bytes{}.Decode(base.Tokens[:5]))},
		"one token":   {with(func(o *Options) { o.MaxTokens = 1 }), nil, Length, string(datasets.Bytes{}.Decode(base.Tokens[:1]))},
		"stop text":   {with(func(o *Options) { o.Stop = []string{"never comes", stop} }), nil, Stopped, before},
		"the context": {with(func(o *Options) { o.Context = 10 }), nil, Full, string(datasets.Bytes{}.Decode(base.Tokens[:8]))},
		"the end": {
			with(func(o *Options) { o.Endless = false }), func(g *Generator) { g.Tokenizer = ending{end: first} }, Document,
			string(datasets.Bytes{}.Decode(base.Tokens[:slices.Index(base.Tokens, first)])),
		},
		"not finite": {options(), func(g *Generator) {
			for _, p := range g.Model.(*moe.Model).Params() {
				if p.Name == "model.norm.weight" {
					p.Work.F32()[0] = float32(math.NaN())
				}
			}
		}, NotFinite, ""},
	} {
		for _, ranks := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/np%d", name, ranks), func(t *testing.T) {
				got := run(t, ranks, "fp32", c.o, c.edit, "abc", "another")
				if got[0].Reason != c.reason || got[0].Text != c.text {
					t.Errorf("%q ends for %q, want %q for %q; all are %q", got[0].Text, got[0].Reason, c.text, c.reason, base.Text)
				}
			})
		}
	}
}

// ending is a byte tokenizer that ends documents with another id.
type ending struct {
	datasets.Bytes
	end int32
}

func (e ending) Encode(text []byte) []int32 {
	if string(text) == "\x00" {
		return []int32{e.end}
	}
	return e.Bytes.Encode(text)
}

// A context that slides goes on with its second half: what came before that does not matter any
// more.
func TestSlide(t *testing.T) {
	o := options()
	o.Context, o.Slide, o.MaxTokens = 12, true, 40
	want := run(t, 1, "bf16", o, nil, "a prompt that is longer than the context")[0]
	if len(want.Tokens) != 40 || want.Reason != Length || want.PromptTokens != 40 {
		t.Errorf("%+v", want)
	}
	o.MaxTokens = 7
	if got := run(t, 2, "bf16", o, nil, "context")[0]; got.Reason != Length || len(got.Tokens) != 7 {
		t.Errorf("%+v", got)
	}
	other := run(t, 2, "bf16", o, nil, "another prompt of which the end is: context")[0]
	if same := run(t, 1, "bf16", o, nil, "ontext")[0]; !slices.Equal(other.Tokens, same.Tokens) {
		t.Errorf("half of the context gives %q, behind more of it %q", same.Text, other.Text)
	}
	o.Context = 1 // every token from the one before
	if got := run(t, 2, "bf16", o, nil, "ab")[0]; len(got.Tokens) != 7 {
		t.Errorf("%+v", got)
	}
}

// Ids that the tokenizer does not have are never drawn, however good.
func TestPaddedVocabulary(t *testing.T) {
	best := func(g *Generator) {
		for _, p := range g.Model.(*moe.Model).Params() {
			if p.Name == "lm_head.weight" {
				for i := 256 * p.Dims[1]; i < p.Len(); i++ {
					p.Work.F32()[i] *= 1e6
				}
			}
		}
	}
	for _, temperature := range []float64{0, 1} {
		o := options()
		o.Temperature = temperature
		got, want := run(t, 1, "fp32", o, best, "abc")[0], run(t, 1, "fp32", o, nil, "abc")[0]
		if !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("temperature %g: %v, without the padding's scores %v", temperature, got.Tokens, want.Tokens)
		}
	}
}
