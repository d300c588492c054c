package measuring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"

	"spmoe/bench"
	"spmoe/tensor/cpu"
)

// A TierKernel is a kernel that is measured in a lower instruction tier than that of this process.
// It runs in a child process, because a process cannot change its tier.
type TierKernel struct {
	Tier        cpu.Tier
	Name, Shape string
}

// String returns the text that --match searches.
func (k TierKernel) String() string { return k.Tier.String() + "_" + k.Name + " " + k.Shape }

// LowerTiers lists the kernels to measure in tiers below the one in use.
func LowerTiers() []TierKernel {
	if best := cpu.Best(); best == cpu.AVX2 || !best.Includes(cpu.AVX2) {
		return nil
	}
	return []TierKernel{{cpu.AVX2, "bf16_gemm", "1024x1024x1024"}}
}

// Measure runs a child process that measures the kernel.
func (k TierKernel) Measure(ctx context.Context, quick bool) (r bench.Result, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	only := "^" + regexp.QuoteMeta(k.Name+" "+k.Shape) + "$"
	child := exec.CommandContext(ctx, self, "bench", "kernels", "--json", "-", "--match", only, fmt.Sprintf("--quick=%t", quick))
	child.Env = append(os.Environ(), cpu.EnvVar+"="+k.Tier.String())
	var problem bytes.Buffer
	child.Stderr = &problem
	out, err := child.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, bytes.TrimSpace(problem.Bytes()))
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("the child process wrote %q: %w", out, err)
	}
	r.Name = k.Tier.String() + "_" + r.Name
	return r, nil
}
