package training

// data: the flags of its subcommands, which tokenize text or train a tokenizer.

import (
	"context"
	"errors"
	"flag"

	"spmoe/datasets"
	"spmoe/launcher/cli"
)

// dataFlags are the flags of data. Each subcommand defines those that it reads.
type dataFlags struct {
	data      []string // paths, including those given as arguments
	field     string
	tokenizer string
	endToken  string
	special   bool
	rules     int
	out       string
	vocab     int
}

// define defines the named flags.
func (f *dataFlags) define(fs *flag.FlagSet, names []string) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	all.Func("data", "`PATH` files, folders or globs to read, as in train --data; default: the sources of the Go installation, or else text inside the program", func(path string) error {
		f.data = append(f.data, path)
		return nil
	})
	all.StringVar(&f.field, "data-field", datasets.DefaultField, "`NAME` field or column with the text in JSON Lines and Parquet files")
	all.StringVar(&f.tokenizer, "tokenizer", "bytes", "`NAME` tokenizer, as in train --tokenizer")
	all.StringVar(&f.endToken, "end-token", "", "`TEXT` token that ends documents, as in train --end-token")
	all.BoolVar(&f.special, "special-tokens", false, "special tokens of the tokenizer that are spelled in text stand for themselves, as in train --special-tokens")
	all.IntVar(&f.rules, "data-rules", int(datasets.NewestRules), "`N` how files are read, as in train --data-rules")
	all.StringVar(&f.out, "out", "", "`FILE` write to FILE")
	all.IntVar(&f.vocab, "vocab", 8192, "`N` vocabulary size of the new tokenizer")
	cli.SelectFlags(fs, all, names)
}

func (f *dataFlags) options() datasets.Options {
	return datasets.Options{Field: f.field, Rules: datasets.Rules(f.rules)}
}

// open opens the tokenizer.
func (f *dataFlags) open() (datasets.Tokenizer, error) {
	t, err := datasets.NewTokenizer(f.tokenizer, f.endToken)
	if err == nil && f.special {
		err = datasets.TakeSpecial(t)
	}
	return t, err
}

// DataCommands are the subcommands of data.
func DataCommands() []cli.Command {
	sub := func(name, about string, flags []string, run func(*dataFlags, context.Context, cli.Env) error, example string) cli.Command {
		return cli.Command{Name: "data " + name, Args: "[PATH...]", About: about, Examples: []string{example}, Define: func(fs *flag.FlagSet) cli.Action {
			f := &dataFlags{}
			f.define(fs, append(flags, "data", "data-field", "data-rules"))
			return func(ctx context.Context, env cli.Env) error {
				f.data = append(f.data, env.Args...)
				if err := datasets.Rules(f.rules).Validate(); err != nil {
					return err
				}
				err := run(f, ctx, env)
				if errors.Is(err, context.Canceled) {
					return cli.Fail(err, cli.ExitInterrupted)
				}
				return err
			}
		}}
	}
	return []cli.Command{
		sub("tokenize", "write the tokens of text to a file that train --data maps into memory", []string{"tokenizer", "end-token", "special-tokens", "out"}, (*dataFlags).tokenize,
			"data tokenize --data corpus/ --tokenizer tokenizer.json --out corpus.arrow"),
		sub("train-tokenizer", "train a byte-level BPE tokenizer on text", []string{"vocab", "out"}, (*dataFlags).trainTokenizer,
			"data train-tokenizer --data corpus/ --vocab 8192 --out tokenizer.json"),
	}
}
