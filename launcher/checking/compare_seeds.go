package checking

// The seeds of a comparison: fixed, chosen for a given power, or added until a verdict.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"

	"spmoe/launcher/cli"
	"spmoe/launcher/convergence"
	"spmoe/launcher/convergence/design"
)

// seedFlags choose the design of a comparison.
type seedFlags struct {
	seeds, most  int
	untilDecided bool
	power        float64
	pilot        string
	margin       float64 // percent
	simulate     int
}

const (
	quickSeeds   = 3 // of --quick
	defaultPilot = 4 // pairs, where --power finds no measured scatter
)

func (f *seedFlags) define(fs *flag.FlagSet) {
	fs.IntVar(&f.seeds, "seeds", 0, "`N` train each precision with exactly N seeds of initial weights and data order; 0: see --until-decided and --power")
	fs.BoolVar(&f.untilDecided, "until-decided", false, "look at the losses up to 8 times and stop when all precisions are decided; the levels of the tests allow for it; the default without --seeds and --power")
	fs.IntVar(&f.most, "max-seeds", 40, "`N` largest number of seeds with --until-decided and --power")
	fs.Float64Var(&f.power, "power", 0, "`CHANCE` train as many seeds as give this chance, such as 0.8, to show equivalence if there is no difference")
	fs.StringVar(&f.pilot, "pilot", "", "`N|FOLDER` learn how much pairs of runs scatter from N extra seeds, trained first, or from the comparison in FOLDER")
	fs.Float64Var(&f.margin, "margin", 0.5, "`PERCENT` largest difference from the baseline's loss that counts as equivalent")
	fs.IntVar(&f.simulate, "simulate", 0, "`N` train nothing: simulate N comparisons per row and print how often each verdict comes out")
}

// isDefault reports whether no flag chooses the number of seeds.
func (f *seedFlags) isDefault() bool { return f.seeds == 0 && !f.untilDecided && f.power == 0 }

// check returns an error if the flags contradict each other.
func (f *seedFlags) check() error {
	ways := 0
	for _, given := range []bool{f.seeds != 0, f.untilDecided, f.power != 0} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("--seeds, --until-decided and --power are different ways to choose the number of seeds: give one of them")
	case f.seeds < 0 || f.seeds > convergence.MaxSeeds:
		return fmt.Errorf("--seeds is %d: give 1 or more, at most %d", f.seeds, convergence.MaxSeeds)
	case f.most < 2 || f.most > convergence.MaxSeeds:
		return fmt.Errorf("--max-seeds is %d: give 2 to %d", f.most, convergence.MaxSeeds)
	case !(f.power >= 0 && f.power < 1):
		return fmt.Errorf("--power is %g: give a chance below 1, such as 0.8", f.power)
	case !(f.margin > 0 && f.margin < 100):
		return fmt.Errorf("--margin is %g: give a positive number of percent below 100, such as 0.5", f.margin)
	case f.simulate < 0 || f.simulate > 1e6:
		return fmt.Errorf("--simulate is %d: give a number of studies up to 1000000", f.simulate)
	}
	return nil
}

// Choose returns the design of a comparison, and prints its chances if the scatter of pairs is
// known. It may train a pilot.
func (f *seedFlags) Choose(ctx context.Context, c *convergence.Comparison, out io.Writer) (d design.Design, err error) {
	scatter, known, err := f.scatter(ctx, c, out)
	if err != nil {
		return d, err
	}
	margin := f.margin / 100
	switch {
	case f.seeds > 0:
		d = design.Fixed(margin, f.seeds)
	case f.power > 0:
		seeds, ok := design.SeedsFor(f.power, margin, scatter, f.most)
		if !ok {
			return d, fmt.Errorf("--power %g: %d seeds do not suffice, as pairs scatter by %.2f %% and %.2f %%: give a larger --max-seeds or --margin, or train longer",
				f.power, f.most, 100*scatter.Train, 100*scatter.HeldOut)
		}
		d = design.Fixed(margin, seeds)
	default:
		d = design.Sequential(margin, f.most)
	}
	switch {
	case known && f.simulate > 0:
		convergence.WriteSimulation(out, d, scatter, f.simulate)
	case known:
		convergence.WriteChances(out, d, scatter)
	case f.simulate > 0:
		return d, errors.New("--simulate needs to know how much pairs scatter, and for these settings it was not measured: give --pilot FOLDER with an earlier comparison")
	}
	return d, nil
}

// scatter returns how much pairs scatter, from the pilot or as measured before, and whether it is
// known. With --power it always is.
func (f *seedFlags) scatter(ctx context.Context, c *convergence.Comparison, out io.Writer) (s design.Scatter, known bool, err error) {
	pilot := f.pilot
	if pilot == "" {
		if c.Varied == nil {
			s, known = convergence.MeasuredScatter(c.Config)
		}
		if known || f.power == 0 {
			return s, known, nil
		}
		pilot = strconv.Itoa(defaultPilot)
	}
	seeds, notNumber := strconv.Atoi(pilot)
	switch {
	case notNumber != nil:
		if s, err = convergence.ReadScatter(pilot); err != nil {
			return s, false, fmt.Errorf("--pilot: %w", err)
		}
	case seeds < 2 || seeds > convergence.MaxSeeds:
		return s, false, fmt.Errorf("--pilot is %d: give 2 seeds or more, or the folder of an earlier comparison", seeds)
	case f.simulate > 0:
		return s, false, errors.New("--simulate trains no pilot: give --pilot the folder of an earlier comparison")
	default:
		if s, err = trainPilot(ctx, c, seeds, out); err != nil {
			return s, false, err
		}
	}
	return s, true, nil
}

// trainPilot trains the pilot of a comparison, or continues it, and returns the scatter of its
// pairs.
func trainPilot(ctx context.Context, c *convergence.Comparison, seeds int, out io.Writer) (s design.Scatter, err error) {
	pilot, err := c.Pilot(seeds)
	if err == nil {
		err = pilot.Check()
	}
	if err != nil {
		return s, err
	}
	fmt.Fprintf(out, "pilot: %d seeds that do not count, to learn how much pairs scatter\n", seeds)
	r, err := pilot.Run(ctx)
	if err != nil {
		return s, cli.Fail(err, cli.ExitFailed)
	}
	s, ok := r.Scatter()
	if !ok {
		return s, cli.Fail(fmt.Errorf("%s: a run has diverged, so the pilot does not say how much pairs scatter", pilot.Out), cli.ExitFailed)
	}
	return s, nil
}
