//go:build !linux

package main

import (
	"context"
	"errors"
	"flag"

	"spmoe/launcher/spmd"
)

// hooks are of use where ranks can be processes.
type hooks struct {
	Fault func(rank int, generation uint32) string
	Event func(spmd.Event)
}

func defineChaos(*flag.FlagSet) func(context.Context, env) error {
	return func(context.Context, env) error {
		return errors.New("chaos is for ranks that are processes, which need Linux")
	}
}
