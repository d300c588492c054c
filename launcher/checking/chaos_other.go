//go:build !linux

package checking

// chaos on systems without rank processes.

import (
	"context"
	"errors"
	"flag"

	"spmoe/launcher/cli"
)

func DefineChaos(*flag.FlagSet) cli.Action {
	return func(context.Context, cli.Env) error {
		return errors.New("chaos needs rank processes, which need Linux")
	}
}

func ChaosCommands() []cli.Command { return nil }
