package training

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"

	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/launcher/weights"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	from, to, dtype, shard string
}

// DefineConvert defines the flags of convert.
func DefineConvert(fs *flag.FlagSet) cli.Action {
	f := &convertFlags{}
	fs.StringVar(&f.from, "from", "", "`FOLDER` run or checkpoint to read")
	fs.StringVar(&f.to, "to", "", "`FOLDER` new folder to write the Hugging Face model to; it must not exist")
	cli.Choice(fs, &f.dtype, "dtype", "`TYPE` type of the weights", "bf16", "fp32")
	fs.StringVar(&f.shard, "shard-size", "5GB", "`SIZE` maximum size of one file, such as 500MB or 2GiB; 0: no limit")
	return f.run
}

func (f *convertFlags) run(ctx context.Context, env cli.Env) error {
	switch {
	case f.from == "" || f.to == "":
		return errors.New("convert needs --from FOLDER and --to FOLDER")
	case len(env.Args) > 0:
		return fmt.Errorf("unexpected argument %q: convert takes flags only", strings.Join(env.Args, " "))
	}
	shard, err := ParseSize(f.shard)
	if err != nil {
		return fmt.Errorf("--shard-size: %w", err)
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
	r, err := source.Convert(ctx, f.to, weights.Options{FP32: f.dtype == "fp32", Shard: shard, Progress: func(written, total int64) {
		if written < total {
			fmt.Fprintf(env.ErrOut, "launcher: %s of %s written\n", system.Bytes(written), system.Bytes(total))
		}
	}})
	if err != nil {
		return running.WriteFailure(err)
	}
	fmt.Fprintf(env.Out, "%d tensors of %s, %s in %s, to %s\n", r.Tensors, source.Path(), system.Bytes(r.Bytes), report.Plural(r.Files, "file"), f.to)
	return nil
}

// ParseSize returns a number of bytes. Units are powers of 1000 or 1024: 5GB, 500MiB, 4096.
func ParseSize(text string) (int64, error) {
	invalid := fmt.Errorf("%q is not a size: give a number with a unit, such as 500MB or 2GiB, or 0", text)
	digits := strings.TrimRight(text, "KMGTiB")
	factor, ok := map[string]float64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}[text[len(digits):]]
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || !ok || !(x >= 0) || x*factor >= math.MaxInt64 {
		return 0, invalid
	}
	return int64(x * factor), nil
}
