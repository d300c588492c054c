package measuring

// project hosts: the throughput of training on CPU hosts in a network.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"spmoe/bench/projection/hosts"
	"spmoe/collective/ep"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/moe"
)

// hostsFlags are the flags that only project hosts has.
type hostsFlags struct {
	train, link string
	gbits       float64
	latency     time.Duration
	hosts, ep   int
	strong      bool
	memory      float64
}

func (f *hostsFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.train, "train", "", "`FILE` results of bench train --json on one host")
	fs.StringVar(&f.link, "link", "", "`FILE` results of bench link --json between two hosts")
	fs.Float64Var(&f.gbits, "link-gbits", 0, "`GBIT/S` bandwidth of a host's link, each way; 0: from --link")
	fs.DurationVar(&f.latency, "link-latency", -1, "`TIME` latency of a message between hosts, such as 20us; negative: from --link")
	fs.IntVar(&f.hosts, "hosts", 2048, "`N` largest number of hosts to project")
	fs.IntVar(&f.ep, "ep-hosts", 0, "`N` maximum number of hosts that share the experts; 0: as many as experts and router groups allow")
	fs.BoolVar(&f.strong, "strong", false, "use strong scaling: --batch is the total over all hosts")
	fs.Float64Var(&f.memory, "host-memory", 0, "`GB` memory of a host; 0: unknown")
}

// hostsFlagNames returns the flags that only project hosts has.
func hostsFlagNames() []string {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	new(hostsFlags).define(fs)
	return cli.FlagNames(fs)
}

func defineProjectHosts(fs *flag.FlagSet) cli.Action {
	f := &projectFlags{}
	f.define(fs, append(hostsFlagNames(), "model", "precision", "seq", "batch", "micro-batch", "mtp", "top-k", "group-limit", "wire", "overlap", "json"))
	for name, usage := range map[string]string{
		"model":       "`NAME` built-in model; default: the measured one",
		"precision":   "`NAME` measured precision to project; default: the first in --train",
		"seq":         "`N` tokens per sequence; default: as measured",
		"batch":       "`N` sequences per optimizer step and host; default: as bench train",
		"micro-batch": "`N` sequences per rank in one forward and backward pass; default: all of its batch",
		"overlap":     "`SHARE` share of the exchange that is hidden behind computation, 0 to 1; -1: as this engine does",
	} {
		flag := fs.Lookup(name)
		flag.Usage = usage
		if name != "overlap" {
			flag.DefValue = "" // it is the measured one
		}
	}
	return cli.NoArguments(func(_ context.Context, env cli.Env) error {
		if f.overlap != -1 {
			f.run.Hidden = &f.overlap
		}
		return f.projectHosts(env)
	})
}

// given returns the names of the flags that were given.
func (f *projectFlags) given() (all []string) {
	f.set.Visit(func(g *flag.Flag) { all = append(all, g.Name) })
	return all
}

// projectHosts prints the projection onto 1, 2, 4, ... hosts.
func (f *projectFlags) projectHosts(env cli.Env) error {
	train, r, err := f.hostsRecipe()
	if err != nil {
		return err
	}
	rows, err := hosts.Project(r, f.hosts.hosts)
	if err != nil {
		return err
	}
	p := HostsProjection{
		Model: f.run.Model, Measured: train, Ranks: r.Ranks, Seq: r.Seq, Batch: r.Batch, Strong: r.Strong, Wire: r.Wire.String(), Link: r.Link,
		Assumptions: r.Assumptions(), Rows: rows,
	}
	if p.Model != train.Flavor {
		p.Assumptions = append(p.Assumptions, fmt.Sprintf("a host has the same FLOP/s with %s as with %s, which was measured", p.Model, train.Flavor))
	}
	if f.json {
		encoder := json.NewEncoder(env.Out)
		encoder.SetIndent("", " ")
		return encoder.Encode(p)
	}
	p.print(env.Out, f.hosts.hosts)
	return nil
}

// hostsRecipe returns the recipe to project. Precision, flavor and lengths are the measured ones,
// unless flags override them.
func (f *projectFlags) hostsRecipe() (train hosts.Train, r hosts.Recipe, err error) {
	given := func(name string) bool { return slices.Contains(f.given(), name) }
	precision := ""
	if given("precision") {
		precision = f.run.Precision
	}
	if train, err = f.hosts.readTrain(precision); err != nil {
		return train, r, err
	}
	if !given("model") {
		f.run.Model = train.Flavor
	}
	defaults, err := BenchDefaults(f.run.Model, 0)
	if err != nil {
		return train, r, fmt.Errorf("--model: %w", err)
	}
	r = hosts.Recipe{
		Model: defaults.Model, Ranks: train.Ranks, Seq: train.Seq, Batch: defaults.Batch, Strong: f.hosts.strong, EPHosts: f.hosts.ep,
		FLOPS: train.FLOPS, Memory: 1e9 * f.hosts.memory, Hidden: f.run.Hidden,
	}
	for _, n := range []struct {
		name  string
		to    *int
		value int
	}{{"seq", &r.Seq, f.run.Seq}, {"batch", &r.Batch, f.run.Batch}, {"micro-batch", &r.MicroBatch, f.run.MicroBatch}, {"top-k", &r.Model.TopK, f.run.TopK}, {"group-limit", &r.Model.TopKGroups, f.run.GroupLimit}} {
		if given(n.name) {
			*n.to = n.value
		}
	}
	if f.run.MTP {
		r.Model.MTPLayers = 1
	}
	if r.Wire, err = ep.ParseWire(f.run.Wire); err != nil {
		return train, r, fmt.Errorf("--wire: %w", err)
	}
	if r.Rule, err = defaults.Optimizer.Rule(); err != nil {
		return train, r, err
	}
	if r.Precision, err = moe.PrecisionByName(train.Precision); err != nil {
		return train, r, fmt.Errorf("--train %s: %w", f.hosts.train, err)
	}
	r.Link, err = f.hosts.readLink()
	return train, r, err
}

// mostResults is the largest file of results to read, in bytes.
const mostResults = 1 << 20

// readTrain reads the results of bench train for a precision; empty: the first.
func (f *hostsFlags) readTrain(precision string) (t hosts.Train, err error) {
	if f.train == "" {
		return t, errors.New("project hosts needs the speed of one host: give --train FILE, which launcher bench train --json FILE writes there")
	}
	text, err := system.ReadFile(f.train, mostResults)
	if err == nil {
		t, err = hosts.ReadTrain(text, precision)
	}
	if err != nil {
		return t, fmt.Errorf("--train %s: %w", f.train, err)
	}
	return t, nil
}

// readLink reads the link from the file, overridden by flags.
func (f *hostsFlags) readLink() (l hosts.Link, err error) {
	if f.link == "" && (f.gbits == 0 || f.latency < 0) {
		return l, errors.New("project hosts needs the network: give --link FILE, which launcher bench link --json FILE writes, or --link-gbits and --link-latency")
	}
	if f.link != "" {
		text, err := system.ReadFile(f.link, mostResults)
		if err == nil {
			l, err = hosts.ReadLink(text)
		}
		if err != nil {
			return l, fmt.Errorf("--link %s: %w", f.link, err)
		}
	}
	if f.gbits != 0 {
		l.Bandwidth = f.gbits * 1e9 / 8
	}
	if f.latency >= 0 {
		l.Latency = f.latency.Seconds()
	}
	return l, nil
}

// HostsProjection is what project hosts --json prints.
type HostsProjection struct {
	Model       string      `json:"model"`
	Measured    hosts.Train `json:"measured"`
	Ranks       int         `json:"ranks"` // per host
	Seq         int         `json:"seq"`
	Batch       int         `json:"batch"`
	Strong      bool        `json:"strong"`
	Wire        string      `json:"wire"`
	Link        hosts.Link  `json:"link"`
	Assumptions []string    `json:"assumptions"`
	Rows        []hosts.Row `json:"rows"`
}

func (p HostsProjection) print(w io.Writer, most int) {
	scaling, each := "weak", " per host"
	if p.Strong {
		scaling, each = "strong", " in total"
	}
	one := p.Rows[0]
	fmt.Fprintf(w, "%s, %s, on hosts of %s; steps of %s of %d tokens%s (%s scaling)\n",
		p.Model, p.Measured.Precision, report.Plural(p.Ranks, "rank"), report.Plural(p.Batch, "sequence"), p.Seq, each, scaling)
	fmt.Fprintf(w, "one host without a network: %s tokens/s, %.3f TFLOP/s (measured on %s: %s tokens/s); link %.4g GB/s each way, %.4g us\n",
		report.Thousands(one.TokensPerSecond), p.Measured.FLOPS/1e12, p.Measured.Flavor, report.Thousands(p.Measured.TokensPerSecond), p.Link.Bandwidth/1e9, 1e6*p.Link.Latency)
	fmt.Fprintf(w, "  %6s %9s %12s %10s %10s %10s %8s %9s\n", "hosts", "EP x DP", "tokens/s", "efficiency", "step s", "sent MB", "exposed", "memory GB")
	for _, r := range p.Rows {
		line := fmt.Sprintf("  %6d %9s %12s %9.1f%% %10.3f %10.1f %7.1f%% %9.1f", r.Hosts, fmt.Sprintf("%d x %d", r.EPHosts, r.Replicas),
			report.Thousands(r.TokensPerSecond), 100*r.Efficiency, r.Step, r.Sent/1e6, 100*r.Exposed, r.Memory/1e9)
		if !r.Fits {
			line += "  does not fit"
		}
		fmt.Fprintln(w, line)
	}
	last := p.Rows[len(p.Rows)-1]
	if last.Hosts < most {
		fmt.Fprintf(w, "  more hosts cannot share %s evenly\n", report.Plural(p.Batch, "sequence"))
	}
	p.printMotions(w, last)
	fmt.Fprintf(w, "\nassumed:\n")
	for _, a := range p.Assumptions {
		fmt.Fprintf(w, "  %s\n", a)
	}
}

// printMotions prints the network time of a step by kind of transfer.
func (p HostsProjection) printMotions(w io.Writer, r hosts.Row) {
	if len(r.Motions) == 0 {
		return
	}
	fmt.Fprintf(w, "\na step on %s: %.1f ms without the network, plus these transfers per host\n", report.Plural(r.Hosts, "host"), 1e3*r.Compute)
	fmt.Fprintf(w, "  %-18s %8s %9s %10s %10s %8s %11s\n", "", "per step", "messages", "MB", "ms", "hidden", "exposed ms")
	for _, m := range r.Motions {
		fmt.Fprintf(w, "  %-18s %8d %9d %10.3f %10.3f %7.1f%% %11.1f\n", m.Name, m.Times, m.Messages, m.Bytes/1e6, 1e3*m.Seconds, 100*m.Hidden/m.Seconds, 1e3*m.Exposed())
	}
	fmt.Fprintln(w, "  messages (per rank), MB (per host) and ms are for one transfer; exposed ms is the total per step")
}
