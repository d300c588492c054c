package training

// The folder of a run: which rank chooses and claims it.

import (
	"cmp"

	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/trainer/config"
)

// claimFolder returns the folder of the run, which it claims.
func (f *TrainFlags) claimFolder(cfg config.Config, claim *running.RunClaim) (run string, err error) {
	run = cfg.Out
	switch {
	case run == "" && !f.resume:
		return claim.TakeFree(cfg.Flavor)
	case !f.resume:
		return run, claim.Take(run)
	case run == "":
		if run, err = running.NewestRun("give its folder with --out"); err != nil {
			return "", err
		}
	}
	return run, claim.TakeExisting(run)
}

// claimTogether is claimFolder. Of ranks that mpirun or srun has started, rank 0 chooses and claims
// the folder, and those whose flags name none take the same one.
func (f *TrainFlags) claimTogether(cfg config.Config, env cli.Env, claim *running.RunClaim) (run string, err error) {
	if env.Cluster == nil {
		return f.claimFolder(cfg, claim)
	}
	if env.Cluster.Leads() {
		if run, err = f.claimFolder(cfg, claim); err != nil {
			return "", err // the others learn of it
		}
	}
	run, err = env.Cluster.Choose(run)
	return cmp.Or(cfg.Out, run), err
}
