// Package checking has the commands that check results: against references, other layouts, other
// precisions and faults.
package checking

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"spmoe/launcher/cli"
	"spmoe/launcher/golden"
	"spmoe/launcher/running"
)

// checkFlags are the flags of check.
type checkFlags struct{ ranks int }

// DefineCheck defines the flags of check.
func DefineCheck(fs *flag.FlagSet) cli.Action {
	f := &checkFlags{}
	running.DefineRankCount(fs, &f.ranks, 1)
	return f.run
}

func (f *checkFlags) run(ctx context.Context, env cli.Env) error {
	if len(env.Args) == 0 {
		return errors.New("check needs an MX reference (a .safetensors file) or a golden folder: config.json, model.safetensors and activations.safetensors, optionally gradients.safetensors and a training trajectory")
	}
	misses := 0
	for _, path := range env.Args {
		n, err := f.check(path, env.Out)
		if err != nil {
			return err
		}
		misses += n
	}
	if misses > 0 {
		return cli.Fail(fmt.Errorf("%d out of bounds or of unknown names", misses), cli.ExitFailed)
	}
	return nil
}

// check compares the build with one folder or file and returns the number of misses.
func (f *checkFlags) check(path string, out io.Writer) (misses int, err error) {
	lines, err := golden.CheckPath(path, f.ranks)
	if err != nil {
		return 0, err
	}
	compared, misses, err := printLines(out, path, lines)
	if err == nil && compared == 0 {
		err = cli.Fail(fmt.Errorf("%s: nothing was compared: the model has none of the reference's tensors", path), cli.ExitFailed)
	}
	return misses, err
}

// printLines prints a table and returns how many lines hold a comparison, and how many miss their
// bound or have a name that the model lacks.
func printLines(out io.Writer, path string, lines []golden.Line) (compared, misses int, err error) {
	unknown := 0
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\terror\tbound\t\tmeasure\n", path)
	for _, l := range lines {
		// The name comes from the file, so it may hold escape sequences.
		name := strings.Trim(strconv.Quote(l.Name), `"`)
		if !l.Compared() {
			mark := "-"
			if l.Unknown {
				mark = "UNKNOWN"
				unknown++
			}
			fmt.Fprintf(table, "%s\t\t\t%s\t%s\n", name, mark, l.Note)
			continue
		}
		compared++
		verdict, note := "ok", l.Rule
		if !l.OK() {
			verdict, note = "MISS", l.Rule+"; "+l.Note
			misses++
		}
		fmt.Fprintf(table, "%s\t%.2e\t%.0e\t%s\t%s\n", name, l.Error, l.Bound, verdict, note)
	}
	fmt.Fprintf(table, "%d compared, %d out of bounds\n", compared, misses)
	return compared, misses + unknown, table.Flush()
}
