package inspecting

// routes: what files of train --record-routes say about loads, how two runs agree, and traces for
// simulators of communication.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"

	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/routes"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/observe"
)

// routesFlags are the flags of routes.
type routesFlags struct {
	steps, export string
	window        observe.Window
}

// DefineRoutes defines the flags of routes.
func DefineRoutes(fs *flag.FlagSet) cli.Action {
	f := &routesFlags{}
	fs.StringVar(&f.steps, "steps", "", "only steps A to B, such as 5..7, or 5; `A..B`")
	fs.StringVar(&f.export, "export", "", "write a line per token and expert to `FILE`, as CSV: step, layer, source rank, token, expert, expert's rank, weight, bytes")
	return f.run
}

func (f *routesFlags) run(_ context.Context, env cli.Env) error {
	f.window = observe.Window{First: 1, Last: math.MaxInt}
	if f.steps != "" {
		var ok bool
		if f.window, ok = cli.ParseSteps(f.steps); !ok {
			return fmt.Errorf("--steps is %q: give 5..7, for steps 5 to 7, or 5", f.steps)
		}
	}
	files, err := f.open(env.Args)
	if err != nil {
		return err
	}
	defer closeAll(files)
	switch {
	case f.export != "":
		if len(files) > 1 {
			return errors.New("--export takes one file of routes")
		}
		return f.trace(files[0])
	case len(files) == 2:
		return f.agreement(env.Out, files[0], files[1])
	}
	return f.loads(env.Out, files[0])
}

// open opens the files.
func (f *routesFlags) open(files []string) (all []*routes.Reader, err error) {
	if n := len(files); n < 1 || n > 2 {
		return nil, fmt.Errorf("routes takes one or two files of train --record-routes, not %d", n)
	}
	for _, name := range files {
		r, err := routes.Open(name)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func closeAll(files []*routes.Reader) {
	for _, r := range files {
		_ = r.Close() // it was only read
	}
}

// each calls do with the chosen steps.
func (f *routesFlags) each(from *routes.Reader, do func(routes.Step) error) error {
	for {
		s, err := from.Next()
		switch {
		case err == io.EOF || err == nil && s.Step > f.window.Last:
			return nil
		case err != nil:
			return err
		case s.Step < f.window.First:
			continue
		}
		if err := do(s); err != nil {
			return err
		}
	}
}

// trace writes --export.
func (f *routesFlags) trace(from *routes.Reader) (err error) {
	if _, err := os.Lstat(f.export); err == nil {
		return fmt.Errorf("--export %s exists already: give a new file", f.export)
	}
	return system.WriteTo(f.export, func(out io.Writer) error {
		t := routes.NewTrace(from.Header, out)
		if err := f.each(from, t.Add); err != nil {
			return err
		}
		return t.Flush()
	})
}

// describeRoutes prints a line about a file.
func describeRoutes(out io.Writer, h routes.Header) {
	fmt.Fprintf(out, "%s, %s: %s with %d experts, top %d; %d tokens per step; %s, experts spread over %d\n",
		cli.Printable(h.Flavor), cli.Printable(h.Precision), report.Plural(len(h.Layers), "layer"), h.Experts, h.TopK, h.Tokens(), report.Plural(h.Ranks, "rank"), h.EP)
}

// loads prints how even the loads are over the steps.
func (f *routesFlags) loads(out io.Writer, from *routes.Reader) error {
	h := from.Header
	loads, table := routes.NewLoads(h), &meansTable{}
	err := f.each(from, func(s routes.Step) error {
		b := loads.Add(s)
		table.add(s.Step, b.Experts, b.Ranks, 100*b.Unused, 100*b.Drift)
		return nil
	})
	if err != nil {
		return err
	}
	describeRoutes(out, h)
	return table.print(out, "busiest expert / mean", "busiest rank / mean", "unused experts, %", "drift, % of load per step")
}

// agreement prints how alike two runs route the same tokens.
func (f *routesFlags) agreement(out io.Writer, a, b *routes.Reader) error {
	h := a.Header
	if err := h.Fits(b.Header); err != nil {
		return fmt.Errorf("the files do not compare: %w", err)
	}
	table := &meansTable{}
	err := f.each(a, func(s routes.Step) error {
		other, err := b.At(s.Step)
		if err != nil {
			return err
		}
		var sum [4]float64
		for i := range h.Layers {
			g := routes.Agree(h, i, s, other)
			for k, v := range [...]float64{100 * g.Choices, 100 * g.Tokens, 100 * g.First, g.Weights} {
				sum[k] += v / float64(len(h.Layers))
			}
		}
		table.add(s.Step, sum[:]...)
		return nil
	})
	if err != nil {
		return err
	}
	describeRoutes(out, h)
	describeRoutes(out, b.Header)
	return table.print(out, "same choices, %", "tokens with the same experts, %", "same first, %", "weights apart")
}

// meansTable prints means of columns over up to ten equal runs of steps.
type meansTable struct {
	steps []int
	rows  [][]float64
}

func (t *meansTable) add(step int, row ...float64) {
	t.steps, t.rows = append(t.steps, step), append(t.rows, row)
}

func (t *meansTable) print(out io.Writer, names ...string) error {
	if len(t.rows) == 0 {
		return errors.New("the file has none of the steps: give other --steps")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "steps\t%s\t\n", strings.Join(names, "\t"))
	parts := min(len(t.rows), 10)
	for i := range parts {
		lo, hi := i*len(t.rows)/parts, (i+1)*len(t.rows)/parts
		fmt.Fprintf(table, "%d..%d", t.steps[lo], t.steps[hi-1])
		for k := range names {
			fmt.Fprintf(table, "\t%s", meanOf(t.rows[lo:hi], k))
		}
		fmt.Fprintln(table, "\t")
	}
	return table.Flush()
}

// meanOf returns the mean of a column, without the rows that have no value.
func meanOf(rows [][]float64, column int) string {
	sum, n := 0.0, 0
	for _, r := range rows {
		if !math.IsNaN(r[column]) {
			sum, n = sum+r[column], n+1
		}
	}
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g", sum/float64(n))
}
