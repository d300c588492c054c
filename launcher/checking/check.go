// Package checking has the commands that check results: against references, other layouts, other
// precisions and faults.
package checking

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"spmoe/launcher/cli"
	"spmoe/launcher/referee"
)

// checkFlags are the flags of check.
type checkFlags struct {
	json  bool
	all   bool
	write string
}

// DefineCheck defines the flags of check.
func DefineCheck(fs *flag.FlagSet) cli.Action {
	f := &checkFlags{}
	fs.BoolVar(&f.json, "json", false, "print the whole report as JSON")
	fs.BoolVar(&f.all, "all", false, "compare every element of the products of a GPU with its sums, and not a sample of 64 x 64")
	fs.StringVar(&f.write, "write", "", "write the reference's own activations and gradients to `FOLDER`, under the same names")
	return f.run
}

func (f *checkFlags) run(ctx context.Context, env cli.Env) error {
	if len(env.Args) == 0 {
		return errors.New("check needs a folder with one training step: config.json, the weights (model.safetensors), batch.safetensors, and the activations and gradients that the program recorded; python/step.py writes one")
	}
	if f.write != "" && len(env.Args) > 1 {
		return fmt.Errorf("--write takes one folder at a time, %d are given", len(env.Args))
	}
	verdicts := map[referee.Verdict]int{}
	for _, path := range env.Args {
		report, err := f.check(path, env)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		verdicts[report.Verdict]++
	}
	if n := verdicts[referee.Wrong]; n > 0 {
		return cli.Fail(fmt.Errorf("%d of %d steps are wrong", n, len(env.Args)), cli.ExitFailed)
	}
	if n := verdicts[referee.CannotTell]; n > 0 {
		return cli.Fail(fmt.Errorf("of %d of %d steps it cannot be told whether they are right", n, len(env.Args)), cli.ExitUndecided)
	}
	return nil
}

// check judges one folder and prints what it finds.
func (f *checkFlags) check(path string, env cli.Env) (*referee.Report, error) {
	if f.write != "" {
		if err := referee.Write(path, f.write); err != nil {
			return nil, err
		}
	}
	printer := referee.NewPrinter(env.Out)
	tell := printer.Line
	if f.json {
		tell = func(*referee.ModuleLine) {}
	}
	report, err := referee.Judge(path, f.all, tell)
	if err != nil {
		return nil, err
	}
	if !f.json {
		return report, printer.Letter(report)
	}
	text, err := report.JSON()
	if err == nil {
		_, err = fmt.Fprintf(env.Out, "%s\n", text)
	}
	return report, err
}
