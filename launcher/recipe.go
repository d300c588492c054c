package main

// recipe prints a built-in low-precision recipe as a file for train --recipe.

import (
	"context"
	"flag"
	"fmt"

	"spmoe/launcher/recipefile"
)

type recipeFlags struct{ given *[]assignment }

func defineRecipe(fs *flag.FlagSet) action {
	f, all := &recipeFlags{}, flag.NewFlagSet("", flag.ContinueOnError)
	f.given = bind(all, trainDefaults)
	selectFlags(fs, all, []string{"nvfp4.", "fp8.", "mx."})
	return f.run
}

func (f *recipeFlags) run(_ context.Context, env env) error {
	if len(env.args) != 1 {
		return fmt.Errorf("recipe takes one name, such as nvfp4, not %d", len(env.args))
	}
	cfg, err := resolve(trainDefaults, "", nil, *f.given)
	if err != nil {
		return err
	}
	cfg.Precision = env.args[0]
	p, err := cfg.Recipe()
	if err != nil {
		return err
	}
	if !p.Quantizes() {
		return fmt.Errorf("%s quantizes nothing: name another recipe, such as nvfp4", p.Name)
	}
	_, err = fmt.Fprint(env.out, recipefile.Text(p))
	return err
}
