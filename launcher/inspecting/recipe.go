package inspecting

// recipe prints a built-in low-precision recipe as a file for the key recipe.

import (
	"context"
	"flag"
	"fmt"

	"spmoe/launcher/cli"
	"spmoe/launcher/recipefile"
)

type recipeFlags struct{ given *[]cli.Assignment }

// DefineRecipe defines the flags of recipe.
func DefineRecipe(fs *flag.FlagSet) cli.Action {
	f, all := &recipeFlags{}, flag.NewFlagSet("", flag.ContinueOnError)
	f.given = cli.Bind(all, cli.TrainDefaults)
	cli.SelectFlags(fs, all, []string{"sum", "nvfp4.", "mxfp4.", "fp8.", "mx."})
	return f.run
}

func (f *recipeFlags) run(_ context.Context, env cli.Env) error {
	if len(env.Args) != 1 {
		return fmt.Errorf("recipe takes one name, such as nvfp4, not %d", len(env.Args))
	}
	cfg, err := cli.Resolve(cli.TrainDefaults, "", nil, *f.given)
	if err != nil {
		return err
	}
	cfg.Precision = env.Args[0]
	p, err := cfg.Recipe()
	if err != nil {
		return err
	}
	if !p.Quantizes() {
		return fmt.Errorf("%s quantizes nothing: name another recipe, such as nvfp4", p.Name)
	}
	_, err = fmt.Fprint(env.Out, recipefile.Text(p))
	return err
}
