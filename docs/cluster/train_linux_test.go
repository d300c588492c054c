package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/internal/testing/slurm"
)

// program takes the place of the launcher: its n-th start ends with the n-th of CODES; to end with
// 143 it waits for SIGTERM, as the launcher does.
const program = `#!/bin/sh
start=${SLURM_RESTART_COUNT:-0}
[ $SLURM_PROCID = 0 ] && echo "start $start, $SLURM_STEP_NUM_TASKS tasks: $*"
set -- $CODES
shift $start
if [ $1 = 143 ]; then
	trap "exit 143" TERM
	scancel --signal=TERM $SLURM_JOB_ID
	while :; do :; done
fi
exit $1
`

// TestTrainSbatch: the batch script starts again what may go on, and nothing else.
func TestTrainSbatch(t *testing.T) {
	c := slurm.Start(t, 4)
	launcher := filepath.Join(t.TempDir(), "launcher")
	if err := os.WriteFile(launcher, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		name, environment string
		options           []string
		code              int
		want              string
	}{
		{"done", "CODES=0", []string{"--ntasks-per-node=2"}, 0, `
start 0, 2 tasks: train --out run --steps 7
`},
		{"failure, then SIGTERM", "CODES=1 143 0", nil, 0, `
start 0, 1 tasks: train --out run --steps 7
exit code 1: queued again
start 1, 1 tasks: train --out run --steps 7
exit code 143: queued again
start 2, 1 tasks: train --out run --steps 7
`},
		{"the same step", "CODES=93 0", nil, 93, `
start 0, 1 tasks: train --out run --steps 7
exit code 93, the same step fails again and again: not queued again
`},
		{"wrong flags", "CODES=2 0", nil, 2, `
start 0, 1 tasks: train --out run --steps 7
exit code 2, the command line, the configuration or the input is wrong: not queued again
`},
		{"often enough", "CODES=1 1 0,RESTARTS=1", nil, 1, `
start 0, 1 tasks: train --out run --steps 7
exit code 1: queued again
start 1, 1 tasks: train --out run --steps 7
exit code 1 after 1 restarts: not queued again
`},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--export=ALL,RUN=run,SLURM_MPI_TYPE=none,LAUNCHER=" + launcher + "," + k.environment}, k.options...)
			got, code := c.Submit(t, append(args, "train.sbatch", "--steps", "7")...)
			if code != k.code || said(got) != k.want[1:] {
				t.Errorf("exit code %d, not %d, and the job prints\n%s, not %s", code, k.code, got, k.want)
			}
		})
	}
}

// said returns the lines of a job's output that are of the script and the program, not of Slurm.
func said(output string) string {
	var kept strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "srun: ") && !strings.HasPrefix(line, "slurmstepd") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
