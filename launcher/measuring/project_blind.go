package measuring

// project blind: predictions of runs whose throughput is kept apart.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"spmoe/bench/projection"
	"spmoe/launcher/cli"
	"spmoe/launcher/system"
)

func defineProjectBlind(fs *flag.FlagSet) cli.Action {
	f := &projectFlags{}
	f.define(fs, []string{"in", "out"})
	fs.Lookup("out").Usage = "`FILE` write the predictions, as JSON, to FILE"
	return cli.NoArguments(func(_ context.Context, env cli.Env) error { return f.blind(env) })
}

// blind predicts the rows of --in, prints them, and writes them to --out.
func (f *projectFlags) blind(env cli.Env) error {
	if f.in == "" || f.out == "" {
		return errors.New("--in and --out are needed: give a file of runs, as bench/projection/blind-runs.json, and one to write")
	}
	text, err := system.ReadFile(f.in, 16<<20)
	if err != nil {
		return fmt.Errorf("--in: %w", err)
	}
	b, err := projection.PredictBlind(text)
	if err != nil {
		return fmt.Errorf("--in %s: %w", f.in, err)
	}
	if err := system.WriteFile(f.out, b.JSON()); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	printBlind(env.Out, b)
	fmt.Fprintf(env.Out, "predictions: %s\n", f.out)
	return nil
}

func printBlind(w io.Writer, b projection.Blind) {
	fmt.Fprintf(w, "code and data of bench/projection, SHA-256 %s\n", b.Hash)
	fmt.Fprintf(w, "  %-40s %-4s %9s  %-15s %s\n", "row", "tier", "tokens/s", "80 % interval", "largest terms")
	for _, r := range b.Rows {
		terms := ""
		for _, t := range r.Terms {
			terms += fmt.Sprintf(" %s %.0f %%", t.Term, 100*t.Share)
		}
		fmt.Fprintf(w, "  %-40s %-4s %9.0f  %-15s%s\n", r.ID, r.Tier, r.Tokens, fmt.Sprintf("%.0f-%.0f", r.Low, r.High), terms)
	}
}
