package training

// The folder of a run: which rank chooses and claims it.

import (
	"cmp"

	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/trainer/config"
)

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
