//go:build !linux

package spmd

import (
	"context"
	"errors"
)

// Run starts the ranks, on Linux only.
func (p *Processes) Run(context.Context) error {
	return errors.New("ranks can be processes on Linux only: use --ranks goroutine")
}
