package inspecting

// schedule: the lists of a pipeline schedule, how they run, and whether a list can run at all.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"spmoe/collective/pipeline"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
)

// scheduleFlags are the flags of schedule.
type scheduleFlags struct {
	set                       *flag.FlagSet
	name, file                string
	pp, perRank, microbatches int
	costs, json               string
}

// DefineSchedule defines the flags of schedule.
func DefineSchedule(fs *flag.FlagSet) cli.Action {
	f := &scheduleFlags{set: fs}
	fs.StringVar(&f.name, "name", "1F1B", "schedule: "+strings.Join(pipeline.Names(), ", "))
	fs.IntVar(&f.pp, "pp", 4, "`N` ranks of the pipeline")
	fs.IntVar(&f.microbatches, "microbatches", 8, "`N` micro-batches")
	fs.IntVar(&f.perRank, "stages-per-rank", 0, "`N` stages of a rank; 0: the least of the schedule, 1 or 2")
	fs.StringVar(&f.file, "file", "", "check and describe the lists in `FILE`, JSON as --json writes it, instead of making some")
	fs.StringVar(&f.costs, "costs", "1,1,1", "times of F, I and W of one stage, and of an overlapped pair if that is not their sum; `F,I,W[,FB]`")
	fs.StringVar(&f.json, "json", "", "write the lists to `FILE` in the form of torch's pipeline_order; -: to standard output, without the rest")
	return cli.NoArguments(f.run)
}

func (f *scheduleFlags) run(_ context.Context, env cli.Env) error {
	costs, err := parseCosts(f.costs)
	if err != nil {
		return err
	}
	schedules, err := f.schedules()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, s := range schedules {
		if err := s.Check(); err != nil {
			return cli.Fail(err, cli.ExitFailed)
		}
		t, err := s.Simulate(costs)
		if err != nil {
			return err
		}
		printSchedule(&out, s, t, costs)
	}
	if f.json == "" {
		_, err := out.WriteTo(env.Out)
		return err
	}
	var lists bytes.Buffer
	if err := pipeline.Write(&lists, schedules...); err != nil {
		return err
	}
	if f.json == "-" {
		_, err := lists.WriteTo(env.Out)
		return err
	}
	_, err = out.WriteTo(env.Out)
	return errors.Join(err, system.WriteFile(f.json, lists.Bytes()))
}

// schedules makes the schedule, or reads those of the file.
func (f *scheduleFlags) schedules() ([]*pipeline.Schedule, error) {
	if f.file == "" {
		s, err := pipeline.New(f.name, f.pp, f.perRank, f.microbatches)
		return []*pipeline.Schedule{s}, err
	}
	var made []string
	f.set.Visit(func(given *flag.Flag) {
		switch given.Name {
		case "name", "pp", "microbatches", "stages-per-rank":
			made = append(made, "--"+given.Name)
		}
	})
	if len(made) > 0 {
		return nil, fmt.Errorf("--file has lists, and %s makes others: give one or the other", strings.Join(made, " "))
	}
	return config.ReadSchedules(f.file)
}

// parseCosts parses the times of F, I and W, and of a pair.
func parseCosts(text string) (c pipeline.Costs, err error) {
	fields := strings.Split(text, ",")
	to := []*float64{&c.F, &c.I, &c.W, &c.FB}
	if len(fields) < 3 || len(fields) > len(to) {
		return c, fmt.Errorf("costs are %q: give three or four times, F,I,W[,FB], such as 1,1,1", text)
	}
	for i, field := range fields {
		const most = 1e9
		v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil || !(v > 0 && v <= most) {
			return c, fmt.Errorf("costs are %q: %q is not a time: give a number above 0 and up to %g", text, field, most)
		}
		*to[i] = v
	}
	return c, nil
}

// printSchedule prints the lists, what each rank does with its time, and what has been published.
func printSchedule(out io.Writer, s *pipeline.Schedule, t *pipeline.Timeline, c pipeline.Costs) {
	fmt.Fprintf(out, "%s: %s, %s, micro-batches 0 to %d; times of a stage: F %g, I %g, W %g",
		s.Name, report.Plural(len(s.Ranks), "rank"), report.Plural(s.Stages, "stage"), s.Microbatches-1, c.F, c.I, c.W)
	if c.FB > 0 {
		fmt.Fprintf(out, ", overlapped F and B %g", c.FB)
	}
	fmt.Fprint(out, "\n\n")
	printLists(out, s)
	table := cli.NewTable(out, "rank", "stages", "idle", "waits", "in flight")
	holders := s.Holders()
	for rank := range s.Ranks {
		var stages []string
		for stage, holder := range holders {
			if holder == rank {
				stages = append(stages, strconv.Itoa(stage))
			}
		}
		table.Row(strconv.Itoa(rank), strings.Join(stages, ","), fmt.Sprintf("%.4g", t.Idle[rank]), fmt.Sprintf("%.4g", t.Waits[rank]), strconv.Itoa(t.InFlight[rank]))
	}
	fmt.Fprintf(out, "\ntime %.6g; bubble %.2f%% of all ranks' time\n", t.End, 100*t.Bubble())
	if p, ok := s.Formula(c); ok {
		fmt.Fprintf(out, "published: idle %s = %.4g, in flight %d\n", p.Text, p.Idle, p.InFlight)
	}
	fmt.Fprintln(out, "  idle: time of the step in which the rank does nothing; waits: of that, between its first and last action")
	fmt.Fprintln(out, "  in flight: the most passes (a stage, a micro-batch) whose activations it holds; each is 1/stages of the model's")
}

// printLists prints the actions in columns. A dot is a bubble.
func printLists(out io.Writer, s *pipeline.Schedule) {
	for rank, list := range s.Ranks {
		fmt.Fprintf(out, "%3d ", rank)
		for _, slot := range list {
			text := slot.String()
			if text == "" {
				text = "."
			}
			fmt.Fprintf(out, " %-4s", text)
		}
		fmt.Fprintln(out)
	}
}
