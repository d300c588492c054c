package main

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

// A tierKernel is a kernel that is measured in a lower instruction tier than that of this process.
// It runs in a child process, because a process cannot change its tier.
type tierKernel struct {
	tier        cpu.Tier
	name, shape string
}

// String returns the text that --match searches.
func (k tierKernel) String() string { return k.tier.String() + "_" + k.name + " " + k.shape }

// lowerTiers lists the kernels to measure in tiers below the one in use.
func lowerTiers() []tierKernel {
	if best := cpu.Best(); best == cpu.AVX2 || !best.Includes(cpu.AVX2) {
		return nil
	}
	return []tierKernel{{cpu.AVX2, "bf16_gemm", "1024x1024x1024"}}
}

// measure runs a child process that measures the kernel.
func (k tierKernel) measure(ctx context.Context, quick bool) (r bench.Result, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	only := "^" + regexp.QuoteMeta(k.name+" "+k.shape) + "$"
	child := exec.CommandContext(ctx, self, "bench", "kernels", "--json", "-", "--match", only, fmt.Sprintf("--quick=%t", quick))
	child.Env = append(os.Environ(), cpu.EnvVar+"="+k.tier.String())
	var problem bytes.Buffer
	child.Stderr = &problem
	out, err := child.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, bytes.TrimSpace(problem.Bytes()))
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("the child process wrote %q: %w", out, err)
	}
	r.Name = k.tier.String() + "_" + r.Name
	return r, nil
}
