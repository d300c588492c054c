package report

import (
	"bytes"
	"math"
	"testing"
	"time"

	"spmoe/collective/mesh"
	"spmoe/datasets"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
)

var (
	start = events.Start{
		Config: config.Config{Flavor: "debug", Precision: "bf16", Steps: 360, Batch: 16, Seq: 128, Out: "runs/debug-1"},
		Ranks:  8, Mesh: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 4, EP: 2}, Counts: moe.Counts{Total: 6274000, Active: 2735000}, FLOPs: 1.76e7, Peak: 465.4e9,
		CPU: "Some CPU", Tier: "avx512bf16", Cores: 2, Corpus: datasets.Counts{TrainBytes: 3 << 20, HeldOutBytes: 1000, Documents: 12},
	}
	resumed = events.Start{
		Config: config.Config{Flavor: "debug", Precision: "fp32", Steps: 1, Batch: 1, Seq: 1, Out: "o"},
		Ranks:  1, Mesh: mesh.Default(1), Cores: 1, Tier: "generic", From: 20, Resumed: "o/step-00000020",
		Corpus:    datasets.Counts{Documents: 1, Builtin: "built-in, x", Losses: datasets.Losses{Skipped: 58, NUL: 100, Replaced: 1, Other: 2}},
		Tokenizer: "own.json, 857 tokens; documents end with [EOS] (856), eos_token of tokenizer_config.json",
	}
	step = events.Step{
		Step: 20, Steps: 360, Loss: 3.06612, GradNorm: 1.04218, LR: 3e-3, TokensPerSec: 17019.4, FLOPS: 0.123e12, MFU: 0.2694,
		Memory: 350e6, MemoryShare: 0.0144, Imbalance: 3.851, Epoch: 0.25, Tokens: 40960, Elapsed: 3 * time.Second, ETA: 100 * time.Second,
	}
	skipped = events.Step{
		Step: 3, Steps: 6, Loss: record.Number(math.NaN()), MTPLoss: 2.5, Balance: 1.25e-4, GradNorm: record.Number(math.Inf(1)), LR: 1e-4, TokensPerSec: 10,
		FLOPS: 1e9, MFU: 0.5, Memory: 1 << 30, MemoryShare: 0.5, Imbalance: 1, Tokens: 3, Skipped: true, SkippedTotal: 2,
	}
	profile = events.Profile{
		Steps: 9, Ranks: 2, Slowest: 1, Step: events.FamilyTime{Name: "step", Mean: 100 * time.Millisecond, Slowest: 66 * time.Millisecond},
		Families: []events.FamilyTime{
			{Name: "bf16 grouped forward", Mean: 60 * time.Millisecond, Slowest: 65432 * time.Microsecond},
			{Name: "waiting", Mean: 39500 * time.Microsecond},
			{Name: "rest", Mean: 500 * time.Microsecond, Slowest: 568 * time.Microsecond},
		},
	}
	done = events.Done{
		Step: 360, Steps: 360, Ranks: 8, Mean: 10, Train: events.LossChange{First: 8 * math.Ln2, Last: 2 * math.Ln2}, HeldOut: events.LossChange{First: math.Ln2, Last: math.NaN()},
		Prompt: "func ", Sample: "main() {\n\treturn\x1b[2J}", Elapsed: 111 * time.Second, Out: "runs/debug-1",
	}
)

// cases are all events in all their forms.
var cases = map[string]struct {
	report        func(events.Reporter)
	console, json string
}{
	"start": {
		func(r events.Reporter) { r.Start(start) },
		"spmoe: debug, 6.274 M parameters (2.735 M active), bf16, 8 ranks\n" +
			"machine: Some CPU, 2 cores, avx512bf16, peak 465 GFLOP/s measured\n" +
			"data: 3 MiB for training, 1000 B for validation, 12 documents\n" +
			"run: 360 steps of 16 sequences of 128 tokens, 1.76e+07 FLOPs per token, in runs/debug-1\n",
		`{"active_parameters":2735000,"batch":16,"cores":2,"cpu":"Some CPU","documents":12,"event":"start","flavor":"debug","flops_per_token":17600000,"from_step":0,"held_out_bytes":1000,` +
			`"mesh":{"world":8,"pp":1,"dp_replicate":2,"dp_shard":4,"ep":2},"np":8,"out":"runs/debug-1","parameters":6274000,"peak_flops":465400000000,"precision":"bf16","resumed":"","seq":128,"steps":360,"tier":"avx512bf16","train_bytes":3145728}`,
	},
	"resumed": {
		func(r events.Reporter) { r.Start(resumed) },
		"spmoe: debug, 0 parameters (0 active), fp32, 1 rank\n" +
			"machine: , 1 core, generic, peak 0 GFLOP/s measured\n" +
			"text: built-in, x\n" +
			"data: 0 B for training, 0 B for validation, 1 document\n" +
			"left out: 58 rows and files without text; the NUL bytes of 100 documents; invalid characters of 1 document, for which U+FFFD stands; 2 files without rows in folders with rows\n" +
			"tokenizer: own.json, 857 tokens; documents end with [EOS] (856), eos_token of tokenizer_config.json\n" +
			"run: 1 step of 1 sequence of 1 tokens, 0 FLOPs per token, in o\n" +
			"resuming o/step-00000020 at step 20\n",
		`{"active_parameters":0,"batch":1,"cores":1,"cpu":"","documents":1,"event":"start","flavor":"debug","flops_per_token":0,"from_step":20,"held_out_bytes":0,` +
			`"losses":{"skipped":58,"nul":100,"replaced":1,"other":2},"mesh":{"world":1,"pp":1,"dp_replicate":1,"dp_shard":1,"ep":1},"np":1,"out":"o","parameters":0,"peak_flops":0,"precision":"fp32","resumed":"o/step-00000020","seq":1,"steps":1,"text":"built-in, x","tier":"generic","tokenizer":"own.json, 857 tokens; documents end with [EOS] (856), eos_token of tokenizer_config.json","train_bytes":0}`,
	},
	"step": {
		func(r events.Reporter) { r.Step(step) },
		"step:  20  loss:  3.0661  grad_norm:  1.0422  lr: 3.00e-03  tps: 17,019  tflops: 0.123  mfu: 26.9%  memory: 333.8 MiB(1.4%)  imbalance: 3.85  eta: 1m40s\n",
		`{"elapsed_s":3,"epoch":0.25,"eta_s":100,"event":"step","grad_norm":1.04218,"imbalance":3.851,"loss":3.06612,"lr":0.003,"memory_bytes":350000000,"memory_share":0.0144,` +
			`"mfu":0.2694,"skipped":false,"skipped_total":0,"step":20,"steps":360,"tflops":0.123,"tokens":40960,"tps":17019.4}`,
	},
	"step that dropped choices": {
		func(r events.Reporter) { r.Step(events.Step{Step: 1, Steps: 1, Dropped: 1234}) },
		"step: 1  loss:  0.0000  grad_norm:  0.0000  lr: 0.00e+00  tps: 0  tflops: 0.000  mfu: 0.0%  memory: 0 B(0.0%)  imbalance: 0.00  eta: 0s  dropped: 1,234\n",
		`{"dropped":1234,"elapsed_s":0,"epoch":0,"eta_s":0,"event":"step","grad_norm":0,"imbalance":0,"loss":0,"lr":0,"memory_bytes":0,"memory_share":0,` +
			`"mfu":0,"skipped":false,"skipped_total":0,"step":1,"steps":1,"tflops":0,"tokens":0,"tps":0}`,
	},
	"skipped step": {
		func(r events.Reporter) { r.Step(skipped) },
		"step: 3  loss:     NaN  grad_norm:    +Inf  lr: 1.00e-04  tps: 10  tflops: 0.001  mfu: 50.0%  memory: 1 GiB(50.0%)  imbalance: 1.00  eta: 0s" +
			"  mtp: 2.5000  balance: 1.25e-04  SKIPPED: its gradients are unusable, weights unchanged (2 steps so far)\n",
		`{"balance_loss":0.000125,"elapsed_s":0,"epoch":0,"eta_s":0,"event":"step","grad_norm":null,"imbalance":1,"loss":null,"lr":0.0001,"memory_bytes":1073741824,"memory_share":0.5,` +
			`"mfu":0.5,"mtp_loss":2.5,"skipped":true,"skipped_total":2,"step":3,"steps":6,"tflops":0.001,"tokens":3,"tps":10}`,
	},
	"evaluation": {
		func(r events.Reporter) { r.Eval(events.Eval{Step: 60, Loss: 1.5, BitsPerByte: 2.25, Sequences: 64}) },
		"validation after step 60: loss 1.5000 nats, 2.2500 bits/byte (64 sequences)\n",
		`{"event":"eval","held_out_bits_per_byte":2.25,"held_out_loss":1.5,"sequences":64,"step":60}`,
	},
	"evaluation of one": {
		func(r events.Reporter) {
			r.Eval(events.Eval{Loss: math.NaN(), BitsPerByte: math.Inf(-1), Sequences: 1})
		},
		"validation after step 0: loss NaN nats, -Inf bits/byte (1 sequence)\n",
		`{"event":"eval","held_out_bits_per_byte":null,"held_out_loss":null,"sequences":1,"step":0}`,
	},
	"sample": {
		func(r events.Reporter) {
			r.Sample(events.Sample{Step: 7, Prompt: "func ", Text: "main\n\x1b[2J"})
		},
		"sample after step 7, after \"func \":\n  | main\n  | \u00b7[2J\n",
		`{"event":"sample","prompt":"func ","step":7,"text":"main\n\u001b[2J"}`,
	},
	"saved": {
		func(r events.Reporter) {
			r.Saved(events.Saved{Step: 7, Path: "runs/a/step-00000007", Stall: 12345 * time.Microsecond, Lag: 1234567 * time.Microsecond})
		},
		"saved runs/a/step-00000007 in 1.235s, training paused for 12ms\n",
		`{"event":"saved","lag_s":1.234567,"path":"runs/a/step-00000007","stall_s":0.012345,"step":7}`,
	},
	"alarm": {
		func(r events.Reporter) { r.Alarm(events.Alarm{Step: 7, Text: "no space\x1b[2J left"}) },
		"ALARM: no space\u00b7[2J left\n",
		`{"event":"alarm","step":7,"text":"no space\u001b[2J left"}`,
	},
	"profile": {
		func(r events.Reporter) { r.Profile(profile) },
		"profile of a step: mean of 9 warm steps and 2 ranks  rank 1 waited least\n" +
			"                               ms      share  rank 1 ms\n" +
			"  bf16 grouped forward     60.000      60.0%     65.432\n" +
			"  waiting                  39.500      39.5%      0.000\n" +
			"  rest                      0.500       0.5%      0.568\n" +
			"  step                    100.000     100.0%     66.000\n",
		`{"event":"profile","mean_s":{"bf16 grouped forward":0.06,"rest":0.0005,"waiting":0.0395},"np":2,"slowest_rank":1,` +
			`"slowest_s":{"bf16 grouped forward":0.065432,"rest":0.000568,"waiting":0},"slowest_step_s":0.066,"step_s":0.1,"steps":9}`,
	},
	"profile of one rank": {
		func(r events.Reporter) {
			r.Profile(events.Profile{Steps: 1, Ranks: 1, Step: events.FamilyTime{Name: "step", Mean: 1e6, Slowest: 1e6}, Families: []events.FamilyTime{{Name: "rest", Mean: 1e6, Slowest: 1e6}}})
		},
		"profile of a step: mean of 1 warm step and 1 rank\n" +
			"                               ms      share\n" +
			"  rest                      1.000     100.0%\n" +
			"  step                      1.000     100.0%\n",
		`{"event":"profile","mean_s":{"rest":0.001},"np":1,"slowest_rank":0,"slowest_s":{"rest":0.001},"slowest_step_s":0.001,"step_s":0.001,"steps":1}`,
	},
	"profile without a warm step": {
		func(r events.Reporter) { r.Profile(events.Profile{Ranks: 2}) },
		"profile: nothing was measured, because the first step does not count: make 2 or more\n",
		`{"event":"profile","mean_s":{},"np":2,"slowest_rank":0,"slowest_s":{},"slowest_step_s":0,"step_s":0,"steps":0}`,
	},
	"done": {
		func(r events.Reporter) { r.Done(done) },
		"\ndone: 360 steps in 1m51s\n" +
			"  training: loss 5.5452 -> 1.3863 nats, 8.0000 -> 2.0000 bits/byte (mean of the last 10 steps)\n" +
			"  validation: loss 0.6931 -> NaN nats, 1.0000 -> NaN bits/byte\n" +
			"sample, after \"func \":\n  | main() {\n  | \treturn\u00b7[2J}\n",
		`{"elapsed_s":111,"event":"done","first_held_out_bits_per_byte":1,"first_held_out_loss":0.6931471805599453,"first_loss":5.545177444479562,"interrupted":false,` +
			`"last_held_out_bits_per_byte":null,"last_held_out_loss":null,"last_loss":1.3862943611198906,"np":8,"out":"runs/debug-1","sample":"main() {\n\treturn\u001b[2J}","step":360,"steps":360}`,
	},
	"done without sample": {
		func(r events.Reporter) { r.Done(events.Done{Step: 1, Steps: 1, Ranks: 1, Out: "o"}) },
		"\ndone: 1 step in 0s\n  training: loss 0.0000 -> 0.0000 nats, 0.0000 -> 0.0000 bits/byte\n  validation: loss 0.0000 -> 0.0000 nats, 0.0000 -> 0.0000 bits/byte\n",
		`{"elapsed_s":0,"event":"done","first_held_out_bits_per_byte":0,"first_held_out_loss":0,"first_loss":0,"interrupted":false,` +
			`"last_held_out_bits_per_byte":0,"last_held_out_loss":0,"last_loss":0,"np":1,"out":"o","sample":"","step":1,"steps":1}`,
	},
	"interrupted": {
		func(r events.Reporter) {
			r.Done(events.Done{Step: 40, Steps: 360, Ranks: 8, Out: "my runs/debug-1", Elapsed: time.Minute, Interrupted: true})
		},
		"interrupted after step 40 of 360; to continue: launcher -np 8 train --resume --out 'my runs/debug-1'\n",
		`{"elapsed_s":60,"event":"done","interrupted":true,"np":8,"out":"my runs/debug-1","step":40,"steps":360}`,
	},
}

func TestConsole(t *testing.T) {
	for name, c := range cases {
		var b bytes.Buffer
		c.report(Console{W: &b})
		if got := b.String(); got != c.console {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.console)
		}
	}
}

func TestJSON(t *testing.T) {
	for name, c := range cases {
		var b bytes.Buffer
		c.report(JSON{&b})
		if got := b.String(); got != c.json+"\n" {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.json)
		}
	}
}

// Whatever a model emits, a terminal gets text, tabs and line ends.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"plain text, \u00e9\u4e16": "plain text, \u00e9\u4e16",
		"a\tb\nc":                  "a\tb\nc",
		"\x1b[31mred\x1b[0m":       "\u00b7[31mred\u00b7[0m",
		"\x1b]0;title\x07":         "\u00b7]0;title\u00b7",
		"over\rwrite\b\x7f":        "over\u00b7write\u00b7\u00b7",
		"\x00\x01":                 "\u00b7\u00b7",
		"\xff\xfe|\xc3":            "\u00b7|\u00b7",
		"\u009b2J":                 "\u00b72J", // the one-character form of an escape sequence
		"\u202eright to left":      "\u00b7right to left",
		"\u200bnothing":            "\u00b7nothing",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q prints as %q, want %q", in, got, want)
		}
	}
	for b := range 256 {
		for _, r := range Printable(string([]byte{'a', byte(b), 'z'})) {
			if r < ' ' && r != '\t' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\ufffd' {
				t.Errorf("byte %#x reaches the terminal as %U", b, r)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1 K", 45376: "45.38 K", 6274000: "6.274 M", 15706484224: "15.71 B", 671026419200: "671 B", 1e12: "1000 B",
	} {
		if got := Count(n); got != want {
			t.Errorf("Count of %d is %q, want %q", n, got, want)
		}
	}
	for v, want := range map[float64]string{
		0: "0", 0.4: "0", 12: "12", 999.4: "999", 999.5: "1,000", 1000: "1,000", 12345: "12,345", 123456: "123,456", 1234567: "1,234,567",
	} {
		if got := Thousands(v); got != want {
			t.Errorf("%g with commas is %q, want %q", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 400 * time.Millisecond: "0s", 600 * time.Millisecond: "1s", 59 * time.Second: "59s", 59600 * time.Millisecond: "1m00s",
		61 * time.Second: "1m01s", time.Hour - time.Second: "59m59s", time.Hour: "1h00m00s", 25*time.Hour + 2*time.Minute + 3*time.Second: "25h02m03s",
	} {
		if got := Clock(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0 steps", 1: "1 step", 2: "2 steps"} {
		if got := Plural(n, "step"); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestShell(t *testing.T) {
	for in, want := range map[string]string{
		"runs/debug-1": "runs/debug-1", "/a.b/c_d": "/a.b/c_d", "": "''", "my run": "'my run'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a;b": "'a;b'", "~": "'~'", "\u00e9": "'\u00e9'",
	} {
		if got := Shell(in); got != want {
			t.Errorf("%q is quoted as %s, want %s", in, got, want)
		}
	}
}
