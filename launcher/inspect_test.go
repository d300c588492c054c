package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"spmoe/launcher/inspecting"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/moe"
)

// inspected returns what inspect prints as JSON.
func inspected(t *testing.T, args ...string) (s inspecting.Sizes) {
	t.Helper()
	if err := json.Unmarshal([]byte(succeed(t, append([]string{"inspect", "--json"}, args...)...)), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// The parts add up to what training counts: parameters, FLOPs and memory, to the last of them.
func TestInspectSums(t *testing.T) {
	for _, c := range []struct {
		flavor, precision string
		ranks             int
		more              []string
	}{
		{"debug", "fp32", 1, nil},
		{"debug", "mxfp8", 4, []string{"--set", "model.mtp_layers=1", "--save-every", "5"}},
		{"small", "mxfp8-experts", 8, []string{"--micro-batch", "1", "--seq", "512"}},
		{"16B", "bf16", 64, []string{"--seq", "4096"}},
		{"671B", "mxfp8-wgrad-bf16", 256, []string{"--set", "model.mtp_layers=1", "--seq", "4096"}},
	} {
		t.Run(c.flavor+" "+c.precision, func(t *testing.T) {
			args := append([]string{c.flavor, "--precision", c.precision, "-np", strconv.Itoa(c.ranks)}, c.more...)
			s := inspected(t, args...)
			text := succeed(t, append([]string{"train", "--dry-run", "--flavor", c.flavor, "--precision", c.precision, "-np", strconv.Itoa(c.ranks), "--batch", strconv.Itoa(s.Batch)}, c.more...)...)
			cfg := resolvedFrom(t, text)
			if got, want := s.Parameters, cfg.Model.Count(); got != want {
				t.Errorf("counts are %+v, want %+v", got, want)
			}
			if dtype, err := cfg.DType(); err != nil || s.Cache != cfg.Model.KVCache()*int64(dtype.Size()) {
				t.Errorf("a token in the cache takes %d bytes, %v", s.Cache, err)
			}
			var sum inspecting.PartSizes
			var replicated, routed int64
			for _, p := range s.Parts {
				if p.MTP {
					p.Active, p.FLOPs = 0, moe.FLOPs{}
				}
				if sum = sum.Plus(p); p.Part == string(moe.Routed) {
					routed += p.Params
				} else {
					replicated += p.Params
				}
			}
			if n := cfg.Model.Count(); sum.Params != n.Total || sum.Active != n.Active || routed != n.Routed || replicated != n.Replicated {
				t.Errorf("%d parameters, %d active, %d routed, counted are %+v", sum.Params, sum.Active, routed, n)
			}
			if got, want := sum.FLOPs.Total(), cfg.Model.FLOPsPerToken(cfg.Seq); got != want || s.FLOPs != want {
				t.Errorf("%v FLOPs per token, %v in all, want %v", got, s.FLOPs, want)
			}
			if got, want := sum.Memory, estimate.Memory(cfg, c.ranks); got != want || s.Memory.Memory != want ||
				s.Memory.All != want.Total() {
				t.Errorf("memory is %+v, in all %+v, want %+v", got, s.Memory, want)
			}
			for _, line := range strings.Split(text, "\n") {
				if line, ok := strings.CutPrefix(line, "# "); ok && !strings.Contains(line, "this machine") && !strings.HasPrefix(line, "NOTE:") && !strings.Contains(succeed(t, append([]string{"inspect"}, args...)...), line+"\n") {
					t.Errorf("inspect says otherwise than train --dry-run: %q", line)
				}
			}
		})
	}
}

// resolvedFrom returns the configuration that --dry-run prints.
func resolvedFrom(t *testing.T, text string) config.Config {
	t.Helper()
	return resolved(t, "--config", write(t, filepath.Join(t.TempDir(), "config.toml"), text))
}

// The tables have every part that the model has, and no other.
func TestInspectText(t *testing.T) {
	out := succeed(t, "inspect", "671B", "-np", "64", "--seq", "4096")
	for _, want := range []string{
		"671B, bf16, on 64 ranks; steps of 512 sequences of 4096 tokens", "parameters: 671 B total, 37.55 B active", "\nrouted experts               653.9 B     20.43 B       97.4%\n",
		"\nattention projections ", "\nattention scores ", "\ndense FFN ", "\nrouter ", "\nshared experts ", "\noutput head ",
		"KV cache per token: 4997120 bytes, keys and values of 128 heads",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if sparse := succeed(t, "inspect", "deepseek-v3.2"); !strings.Contains(sparse, "keys and values of 128 heads, and keys of indexers") {
		t.Errorf("no keys of indexers in\n%s", sparse)
	}
	if strings.Contains(out, "\nMTP module") || strings.Count(out, "\nall ") != 3 {
		t.Errorf("parts that are not there, or sums that are missing:\n%s", out)
	}
	if out := succeed(t, "inspect", "--set", "model.mtp_layers=1", "--set", "model.shared_experts=0"); strings.Count(out, "\nMTP module") != 3 ||
		strings.Contains(out, "\nshared experts") {
		t.Errorf("debug with an MTP module and without shared experts:\n%s", out)
	}
}

// A run, its checkpoint and what is exported from it have the same sizes.
func TestInspectFolders(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "run", "--steps", "1", "-np", "2")...)
	if got := inspected(t, "run"); got.Ranks != 2 {
		t.Errorf("the run of 2 ranks is described on %d", got.Ranks)
	}
	want := inspected(t, "run", "-np", "1")
	if want.Flavor != "debug" || want.Seq != 32 || want.Batch != 4 || want.Parameters.Total != 45376 {
		t.Errorf("the run has %+v", want)
	}
	if got := inspected(t, "run/step-00000001", "-np", "1"); got.Parameters != want.Parameters || got.Memory != want.Memory {
		t.Errorf("its checkpoint has %+v", got)
	}
	if got := inspected(t, "run", "-np", "4", "--seq", "16"); got.Ranks != 4 || got.Seq != 16 {
		t.Errorf("%+v", got)
	}
	cfg := resolved(t, "--config", "run/config.toml")
	hf, err := cfg.Model.MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("exported", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "exported/config.json", string(hf))
	// A model has no data, so its process has that of the default.
	modelOnly := func(m inspecting.MemorySizes) inspecting.MemorySizes {
		m.All -= m.Process
		m.Process = 0
		return m
	}
	if got := inspected(t, "exported", "--seq", "32", "--batch", "4"); got.Flavor != "exported" || got.Parameters != want.Parameters ||
		modelOnly(got.Memory) != modelOnly(want.Memory) {
		t.Errorf("exported, it has %+v", got)
	}
}

// The model in the JSON output is the configuration that was inspected, flags included.
func TestInspectModel(t *testing.T) {
	s := inspected(t, "671B", "--set", "model.layers=5", "--set", "model.vocab=100277")
	got, _, err := moe.ParseHF(s.Model)
	if err != nil {
		t.Fatal(err)
	}
	if got.Count() != s.Parameters || got.Layers != 5 || got.Vocab != 100277 || got.YaRN.Factor != 40 || got.TopKGroups != 4 {
		t.Errorf("%+v has %+v, want %+v", got, got.Count(), s.Parameters)
	}
}
