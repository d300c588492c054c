package training

// What train checks and says of a run before it begins: how it differs from the checkpoint that it
// resumes, where its folder lies and which rank claims it, and the dry run.

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/inspecting"
	"spmoe/launcher/record"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// compare notes how a resumed run differs from its checkpoint. It returns an error for a change of
// what the run computes, unless the user allows it, and for one that is impossible.
func (f *TrainFlags) compare(saved, cfg config.Config, from string) error {
	if err := cfg.Validate(f.ranks.Count); err != nil {
		return err
	}
	changes, err := config.Changes(saved, cfg, from)
	if err != nil {
		return err
	}
	var meaningful []string
	var step int
	fmt.Sscanf(filepath.Base(from), "step-%d", &step)
	for _, c := range changes {
		if c.Key == "steps" && cfg.Steps < step {
			return nil // the end of the run is past, as its preparation will say
		}
		f.notes = append(f.notes, "this differs from the run so far: "+c.String())
		if c.Meaningful {
			meaningful = append(meaningful, "\n  "+c.String())
		}
	}
	f.notes = append(f.notes, rateNotes(saved, cfg, step)...)
	if len(meaningful) > 0 && !f.allowChanges {
		return fmt.Errorf("%s was trained with other settings; these changes make another run of it:%s\nadd --allow-changes to go on like this, or leave these flags out", from, strings.Join(meaningful, ""))
	}
	return nil
}

// rateNotes notes that the learning rate rises after a step because the run resumes with other
// settings.
func rateNotes(saved, cfg config.Config, step int) []string {
	const visible = 1.05
	if step == 0 || step >= cfg.Steps {
		return nil
	}
	before, next := saved.LearningRate(step-1), cfg.LearningRate(step)
	if next <= visible*max(before, saved.LearningRate(step)) {
		return nil
	}
	note := fmt.Sprintf("the learning rate rises from %.2e in step %d to %.2e in step %d", before, step, next, step+1)
	if planned := saved.PlannedSteps(); cfg.PlannedSteps() != planned {
		note += fmt.Sprintf(": its schedule was planned for %d steps: add --set schedule_steps=%[1]d to keep to it", planned)
	}
	return []string{note}
}

// refuseRunsAsData returns an error if a folder of the data is that of a run, or if the folder of a
// new run lies in it: when the run resumes, its own files would be read as text.
func refuseRunsAsData(cfg config.Config) error {
	out, err := filepath.Abs(cfg.Out)
	if err != nil {
		return err
	}
	for _, given := range cfg.Data {
		path := given
		if one, _, ok := datasets.SplitWeight(given); ok {
			path = one
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, record.File)); err == nil {
			return fmt.Errorf("--data %s is the folder of a run, not text: give the text, or --init-from %[1]s to start from its weights", path)
		}
		folder, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if inside, err := filepath.Rel(folder, out); err == nil && filepath.IsLocal(inside) {
			return fmt.Errorf("the run's folder %s lies in the data, %s: when the run resumes, its files would be text, too: give --out a folder elsewhere, or --data the files, such as '%s'",
				cfg.Out, path, filepath.Join(path, "*.txt"))
		}
	}
	return nil
}

// describe prints the configuration, sizes and costs of a run, after a look at what it reads.
func (f *TrainFlags) describe(cfg config.Config, from string, env cli.Env) error {
	if err := cfg.Validate(f.ranks.Count); err != nil {
		return err
	}
	notices, err := trainer.Look(cfg, from)
	if err != nil {
		return err
	}
	text, err := config.TOML(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "%s\n", text)
	inspecting.Summarize(env.Out, "# ", cfg, f.ranks.Count)
	if on := f.ranks.Host(env); on.Processes > 1 {
		fmt.Fprintf(env.Out, "# memory of %d processes, with the launcher: %s\n", on.Processes, system.Bytes(estimate.Need(cfg, f.ranks.Count, on)))
	}
	for _, note := range slices.Concat(f.notes, notices, estimate.LayoutNotices(cfg, f.ranks.Count, f.ranks.Host(env).FirstRanks(f.ranks.Count))) {
		fmt.Fprintf(env.Out, "# NOTE: %s\n", note)
	}
	return nil
}

// claimFolder returns the folder of the run, which it claims. Of ranks that mpirun or srun has
// started, rank 0 chooses and claims it, and those whose flags name none take the same one.
func (f *TrainFlags) claimFolder(cfg config.Config, env cli.Env, claim *running.RunClaim) (run string, err error) {
	run = cfg.Out
	follows := env.Cluster != nil && !env.Cluster.Leads()
	switch {
	case follows:
	case run == "" && !f.resume:
		run, err = claim.TakeFree(cfg.Flavor)
	case !f.resume:
		err = claim.Take(run)
	case run == "":
		if run, err = running.NewestRun("give its folder with --out"); err != nil {
			return "", err
		}
		fallthrough
	default:
		err = claim.TakeExisting(run)
	}
	if err != nil || env.Cluster == nil {
		return run, err // other ranks get an error from Choose
	}
	chosen, err := env.Cluster.Choose(run)
	return cmp.Or(run, chosen), err
}
