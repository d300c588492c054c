//go:build !linux

package checking

// chaos on systems without rank processes.

import (
	"context"
	"errors"
	"flag"

	"spmoe/launcher/cli"
)

// DefineChaos returns an action that refuses to run.
func DefineChaos(*flag.FlagSet) cli.Action {
	return func(context.Context, cli.Env) error {
		return errors.New("chaos needs rank processes, which need Linux")
	}
}

// ChaosCommands returns no commands.
func ChaosCommands() []cli.Command { return nil }
