package checking

// compare --vary: settings of the runs as arms.

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/cli"
	"spmoe/launcher/convergence"
	"spmoe/launcher/trainer/config"
)

// varyFlags are the uses of --vary.
type varyFlags struct {
	flags *flag.FlagSet // of compare
	lists []variation
}

// variation is a setting with its values, the baseline's first.
type variation struct {
	name   string
	values []string
	given  []cli.Assignment // of each value
}

func (v variation) String() string { return v.name + "=" + strings.Join(v.values, ",") }

// texts returns the variations as they are given, or nil if there are none.
func (f *varyFlags) texts() (all []string) {
	for _, v := range f.lists {
		all = append(all, v.String())
	}
	return all
}

// notVaried are the settings that arms of one comparison share, with what to do instead.
func notVaried() map[string]string {
	all := map[string]string{
		"precision": "give several with --precision, such as bf16,mxfp8",
		"recipe":    "give recipe files among the precisions, such as --precision bf16,mine.toml",
		"seed":      "every arm trains with each of the seeds, see --seeds and --until-decided",
		"flavor":    "vary single settings of the model, or make one comparison per flavor and read them with --sizes",
		"steps":     "arms are compared step by step: make one comparison per number of steps",
		"out":       "give the folder of the whole comparison with --out",
		"init-from": "its weights determine the model: make one comparison for each",
	}
	for _, name := range strings.Fields("data data-field tokenizer model.vocab seq eval-sequences") {
		all[name] = "losses on other text, or on other parts of it, cannot be compared"
	}
	for _, name := range strings.Fields("record-every eval-every log-every") {
		all[name] = "it changes what is recorded, which the arms must have in common"
	}
	return all
}

// nameableValue are values that can be part of a folder's name.
var nameableValue = regexp.MustCompile(`^[A-Za-z0-9.+-][A-Za-z0-9.+_:|-]{0,63}$`)

// add adds NAME=VALUE,VALUE. Values are checked as those of the flag NAME are.
func (f *varyFlags) add(text string) error {
	name, list, ok := strings.Cut(text, "=")
	v := variation{name: strings.ReplaceAll(strings.TrimLeft(strings.TrimSpace(name), "-"), "_", "-")}
	if !ok || v.name == "" {
		return errors.New("give a setting and its values, such as optimizer.lr=1e-3,3e-3")
	}
	known := f.flags.Lookup(v.name)
	if known == nil {
		return cli.UnknownFlag(f.flags, v.name)
	}
	s, ok := known.Value.(*cli.Setting)
	if !ok {
		return fmt.Errorf("--%s is about the comparison, not about its runs: vary a setting of train, such as optimizer.lr", v.name)
	}
	if instead := notVaried()[v.name]; instead != "" {
		return fmt.Errorf("%s cannot be varied: %s", v.name, instead)
	}
	if slices.ContainsFunc(f.lists, func(other variation) bool { return other.name == v.name }) {
		return fmt.Errorf("%s is given twice: give all its values in one list", v.name)
	}
	one := cli.Setting{Field: s.Field, Kind: s.Kind, Given: &v.given}
	for value := range strings.SplitSeq(list, ",") {
		value = strings.TrimSpace(value)
		if !nameableValue.MatchString(value) {
			return fmt.Errorf("%q is no value that names a run: give values of letters, digits, . + - _ joined by commas", value)
		}
		if err := one.Set(value); err != nil {
			return fmt.Errorf("%s is %q: %w%s", v.name, value, err, cli.ValueAdvice(v.name, value))
		}
		if err := cli.CheckValue("compare", v.name, value); err != nil {
			return err
		}
		v.values = append(v.values, value)
	}
	if len(v.values) < 2 {
		return fmt.Errorf("%s has one value: give the baseline's and at least one other", v.name)
	}
	f.lists = append(f.lists, v)
	return nil
}

// settings returns the variations for package convergence.
func (f *varyFlags) settings() (lists [][]convergence.Setting) {
	for _, v := range f.lists {
		var list []convergence.Setting
		for i, value := range v.values {
			list = append(list, convergence.Setting{Name: v.name, Value: value, Apply: func(cfg *config.Config) { cli.Apply(cfg, v.given[i:i+1]) }})
		}
		lists = append(lists, list)
	}
	return lists
}

// recipes returns the arms. With --vary, cfg takes the first values, and one precision is enough:
// that of --precision or of the config file, otherwise the first of the default.
func (f *CompareFlags) recipes(cfg *config.Config, text []byte, given []cli.Assignment) (all []convergence.Recipe, err error) {
	if len(f.vary.lists) == 0 {
		all, err = convergence.ParseRecipes(cfg.Precision)
	} else {
		for _, v := range f.vary.lists {
			if slices.ContainsFunc(given, func(a cli.Assignment) bool { return slices.Equal(a.Field, v.given[0].Field) }) {
				return nil, fmt.Errorf("--%s and --vary %v set the same: leave --%[1]s out", v.name, v)
			}
			cli.Apply(cfg, v.given[:1])
		}
		var explicit config.Config
		if err := stricttoml.Unmarshal(cli.RenameKeys(text), &explicit); err != nil {
			return nil, cli.Locate(f.config, err)
		}
		if cli.Apply(&explicit, given); explicit.Precision == "" {
			cfg.Precision, _, _ = strings.Cut(cfg.Precision, ",")
		}
		all, err = convergence.VaryRecipes(cfg.Precision, f.vary.settings())
	}
	if err != nil {
		return nil, fmt.Errorf("--precision: %w", err)
	}
	return all, nil
}
