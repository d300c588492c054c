package training

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/launcher/weights"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	from, to, dtype string
}

// DefineConvert defines the flags of convert.
func DefineConvert(fs *flag.FlagSet) cli.Action {
	f := &convertFlags{}
	fs.StringVar(&f.from, "from", "", "`FOLDER` run, checkpoint or Hugging Face model to read; FP8 weights are supported")
	fs.StringVar(&f.to, "to", "", "`FOLDER` new folder to write the Hugging Face model to; it must not exist")
	cli.Choice(fs, &f.dtype, "dtype", "`TYPE` type of the weights", "bf16", "fp32")
	return f.run
}

func (f *convertFlags) run(ctx context.Context, env cli.Env) error {
	switch {
	case f.from == "" || f.to == "":
		return errors.New("convert needs --from FOLDER and --to FOLDER")
	case len(env.Args) > 0:
		return fmt.Errorf("unexpected argument %q: convert takes flags only", strings.Join(env.Args, " "))
	}
	if err := weights.Free(f.to); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	source, err := weights.Open(f.from)
	if err != nil {
		return err
	}
	defer source.Close()
	for _, warning := range source.Foreign() {
		fmt.Fprintf(env.ErrOut, "launcher: warning: %s\n", warning)
	}
	r, err := source.Convert(ctx, f.to, weights.Options{FP32: f.dtype == "fp32"})
	if err != nil {
		return running.WriteFailure(err)
	}
	fmt.Fprintf(env.Out, "%d tensors of %s, %s, to %s\n", r.Tensors, source.Path(), system.Bytes(r.Bytes), f.to)
	return nil
}
