package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/bench/projection/hosts"
	"spmoe/launcher/cli"
	"spmoe/launcher/measuring"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/moe"
)

// measuredHost is a file as bench train writes it, of a flavor with sequences of 512 tokens on two
// ranks.
func measuredHost(t *testing.T, flavor string) string {
	t.Helper()
	m, err := moe.FlavorByName(flavor)
	if err != nil {
		t.Fatal(err)
	}
	const line = `{"name":"%s","value":%v,"flavor":"%s","np":2}` + "\n"
	return write(t, filepath.Join(t.TempDir(), "train.jsonl"),
		fmt.Sprintf(line, "bf16_tokens_per_s", 1715, flavor)+fmt.Sprintf(line, "bf16_tflops", 1715*m.FLOPsPerToken(512)/1e12, flavor))
}

// What bench train prints of a host is what project hosts starts from.
func TestProjectHosts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "train.jsonl")
	succeed(t, "-np", "2", "bench", "train", "--quick", "--seq", "32", "--batch", "2", "--precision", "bf16", "--data", text(t), "--json", file)
	link := write(t, filepath.Join(dir, "link.jsonl"), `{"name":"link_gbytes_per_s","value":2.5}`+"\n"+`{"name":"link_latency_us","value":30}`)
	out := succeed(t, "project", "hosts", "--train", file, "--link", link, "--hosts", "64")
	for _, want := range []string{
		"debug, bf16, on hosts of 2 ranks; steps of 16 sequences of 32 tokens per host (weak scaling)", "link 2.5 GB/s each way, 30 us",
		"EP x DP", "\na step on 64 hosts: ", "\n  dispatch ", "\nassumed:\n", "at most 8 hosts share the experts",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !regexp.MustCompile(`(?m)^ +1 +1 x 1 +[\d,]+ +100\.0% +[\d.]+ +0\.0 +0\.0% +[\d.]+\n(.*\n){5} +64 +8 x 8 +`).MatchString(out) {
		t.Errorf("rows for 1 to 64 hosts are not there:\n%s", out)
	}
	var p measuring.HostsProjection
	if err := json.Unmarshal([]byte(succeed(t, "project", "hosts", "--train", file, "--link", link, "--link-latency", "10us", "--batch", "2", "--json")), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Rows) != 12 || p.Link != (hosts.Link{Bandwidth: 2.5e9, Latency: 10e-6}) || p.Batch != 2 || p.Seq != 32 ||
		len(p.Assumptions) < 5 {
		t.Errorf("%+v", p)
	}
	if got := p.Rows[0].TokensPerSecond; math.Abs(got/p.Measured.TokensPerSecond-1) > 1e-9 {
		t.Errorf("one host makes %g tokens a second, %g were measured", got, p.Measured.TokensPerSecond)
	}
}

// Flags change what is projected; another model is computed at the FLOP/s that were measured.
func TestProjectHostsFlags(t *testing.T) {
	base := []string{"project", "hosts", "--train", measuredHost(t, "small"), "--link-gbits", "25", "--link-latency", "20us", "--hosts", "8", "--json"}
	read := func(more ...string) (p measuring.HostsProjection) {
		t.Helper()
		if err := json.Unmarshal([]byte(succeed(t, append(base[:len(base):len(base)], more...)...)), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := read()
	last := func(p measuring.HostsProjection) hosts.Row { return p.Rows[len(p.Rows)-1] }
	if last(plain).EPHosts != 8 || plain.Batch != 8 || plain.Seq != 512 || plain.Link.Bandwidth != 25e9/8 {
		t.Errorf("%+v", plain)
	}
	for _, x := range []struct {
		flags string
		holds func(p measuring.HostsProjection) bool
	}{
		{"--ep-hosts 2", func(p measuring.HostsProjection) bool { return last(p).EPHosts == 2 && last(p).Replicas == 4 }},
		{"--wire mxfp8", func(p measuring.HostsProjection) bool { return p.Wire == "mxfp8" && last(p).Sent < last(plain).Sent }},
		{"--overlap 1", func(p measuring.HostsProjection) bool {
			return last(p).Step < last(plain).Step && last(p).Sent == last(plain).Sent
		}},
		{"--strong", func(p measuring.HostsProjection) bool {
			return p.Strong && last(p).Hosts == 4 && last(p).Tokens == 8*512
		}},
		{"--host-memory 0.001", func(p measuring.HostsProjection) bool { return !last(p).Fits }},
		{"--seq 256", func(p measuring.HostsProjection) bool { return p.Rows[0].TokensPerSecond > 1715 && p.Seq == 256 }},
		{"--micro-batch 1", func(p measuring.HostsProjection) bool {
			return last(p).Motions[0].Times == 4*last(plain).Motions[0].Times
		}},
		{"--top-k 2", func(p measuring.HostsProjection) bool {
			return last(p).Sent < last(plain).Sent && p.Rows[0].TokensPerSecond > 1715
		}},
		{"--mtp", func(p measuring.HostsProjection) bool {
			return last(p).Motions[0].Times == last(plain).Motions[0].Times+1 && p.Rows[0].TokensPerSecond < 1715
		}},
		{"--model 671B --group-limit 2", func(p measuring.HostsProjection) bool {
			return p.Rows[0].TokensPerSecond < 5 && strings.Contains(strings.Join(p.Assumptions, "\n"), "the same FLOP/s with 671B as with small") &&
				strings.Contains(strings.Join(p.Assumptions, "\n"), "within 2 of 8 groups")
		}},
	} {
		if p := read(strings.Fields(x.flags)...); !x.holds(p) {
			t.Errorf("%s: %+v", x.flags, p)
		}
	}
	if out := succeed(t, append(base[:len(base)-1:len(base)-1], "--strong", "--host-memory", "0.001")...); !strings.Contains(
		out,
		"more hosts cannot share 8 sequences evenly",
	) ||
		!strings.Contains(out, "does not fit") {
		t.Errorf("%s", out)
	}
}

func TestProjectHostsRefused(t *testing.T) {
	file := measuredHost(t, "small")
	link := []string{"--link-gbits", "25", "--link-latency", "20us"}
	with := func(more ...string) []string {
		return append(append([]string{"project", "hosts", "--train", file}, link...), more...)
	}
	empty := write(t, filepath.Join(t.TempDir(), "empty"), "")
	for want, args := range map[string][]string{
		"give --train FILE":                     append([]string{"project", "hosts"}, link...),
		"give --link FILE":                      {"project", "hosts", "--train", file, "--link-gbits", "25"},
		"--link " + empty + ": there is no":     {"project", "hosts", "--train", file, "--link", empty},
		"--train " + empty + ": the report has": append([]string{"project", "hosts", "--train", empty}, link...),
		"no such file":                          append([]string{"project", "hosts", "--train", file + ".none"}, link...),
		"0 hosts: give 1 to":                    with("--hosts", "0"),
		"project hosts has no flag --gpu":       with("--gpu", "b200"),
		"--train: it is a flag of project ho":   {"project", "explain", "--train", file},
		"project has no flag --ep-hosts: it":    {"project", "--ep-hosts", "2"},
		"precision \"fp32\" was not measured":   with("--precision", "fp32"),
		"--model: unknown flavor":               with("--model", "Kimi-K2"),
		"--wire: rows in \"int4\"":              with("--wire", "int4"),
		"hidden share":                          with("--overlap", "2"),
		"groups of 3 hosts":                     with("--ep-hosts", "3"),
		"batch is 3":                            with("--batch", "3"),
		"-1e+09 bytes per second":               with("--link-gbits", "-8"),
		"did you mean hosts":                    {"project", "host"},
	} {
		refuse(t, cli.ExitUsage, args, want)
	}
}

// One host needs what train's own estimate says, without the process.
func TestProjectHostsMemory(t *testing.T) {
	for _, f := range moe.Flavors() {
		for _, p := range moe.Precisions() {
			cfg, err := config.Default(f.Name)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Precision, cfg.SaveAsync, cfg.ChainPasses, cfg.Batch, cfg.MicroBatch = p.Name, false, false, 32, 2
			rule, err := cfg.Optimizer.Rule()
			if err != nil {
				t.Fatal(err)
			}
			rows, err := hosts.Project(hosts.Recipe{Model: cfg.Model, Precision: p, Rule: rule, Ranks: 4, Seq: cfg.Seq, Batch: cfg.Batch, MicroBatch: cfg.MicroBatch, FLOPS: 1, Link: hosts.Link{Bandwidth: 1}}, 1)
			if err != nil {
				t.Fatal(err)
			}
			estimate := estimate.Memory(cfg, 4)
			if got, want := rows[0].Memory, float64(4*(estimate.Total()-estimate.Process)); math.Abs(got/want-1) > 1e-6 {
				t.Errorf("%s, %s: %g bytes, train's estimate is %g", f.Name, p.Name, got, want)
			}
		}
	}
}
