package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor/cpu"
)

// agreeOnHosts returns the error of two jobs that are the ranks of two hosts. Both get the same.
func agreeOnHosts(jobs [2]*Job) error {
	var own [2]error
	failed := collective.NewHosts(1, 1).Run(func(c *collective.Comm) error {
		own[c.Rank()] = jobs[c.Rank()].agree(c)
		return nil
	})
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("while comparing: %w", err)
	}
	if fmt.Sprint(own[0]) != fmt.Sprint(own[1]) {
		return fmt.Errorf("host a says %w, host b %w", own[0], own[1])
	}
	return own[0]
}

// eachField calls visit with every key of the configuration and its field, which it may set.
func eachField(v reflect.Value, prefix string, visit func(key string, field reflect.Value)) {
	for i := range v.NumField() {
		f, key := v.Type().Field(i), prefix+stricttoml.Key(v.Type().Field(i))
		switch {
		case f.Anonymous:
			eachField(v.Field(i), prefix, visit)
		case f.Type.Kind() == reflect.Struct:
			eachField(v.Field(i), key+".", visit)
		default:
			visit(key, v.Field(i))
		}
	}
}

// Hosts that differ in the value of a key refuse to start, and name the key and both values. Keys
// on the list may differ.
func TestAgreeOnEveryKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg := tiny(t, nil)
	keys := map[string]bool{}
	eachField(reflect.ValueOf(&cfg).Elem(), "", func(key string, field reflect.Value) {
		keys[key] = true
		was := reflect.ValueOf(field.Interface())
		one := &Job{cfg: cfg}
		switch {
		case field.Kind() == reflect.Bool:
			field.SetBool(!field.Bool())
		case field.CanInt():
			field.SetInt(field.Int() + 1)
		case field.CanUint():
			field.SetUint(field.Uint() + 1)
		case field.CanFloat():
			field.SetFloat(field.Float() + 1e-12)
		case field.Kind() == reflect.String:
			field.SetString(file)
		default:
			field.Set(reflect.ValueOf([]string{file}))
		}
		other := &Job{cfg: cfg}
		err := agreeOnHosts([2]*Job{one, other})
		want := fmt.Sprintf("the ranks do not agree: %s is %s on rank 0 on host a, but %s on rank 1 on host b", key, config.Value(was.Interface()), config.Value(field.Interface()))
		if mayDiffer[key] && err != nil ||
			!mayDiffer[key] && (!errors.As(err, new(*DisagreementError)) || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q (may differ: %v)", key, err, want, mayDiffer[key])
		}
		field.Set(was)
	})
	for key := range mayDiffer {
		if !keys[key] {
			t.Errorf("%s may differ, but is no key", key)
		}
	}
}

// What is not in the configuration is compared too: flags, files by their content, and the
// instruction tier.
func TestAgreeBeyondConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	settings := func(tier cpu.Tier, content string, flags ...Setting) []Setting {
		if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		j := &Job{cfg: tiny(t, nil), Settings: flags}
		j.cfg.ReplayRoutes, j.cfg.Data, j.cfg.Out = file, nil, ""
		all, err := j.settings()
		if err != nil {
			t.Fatal(err)
		}
		if last := &all[len(all)-1]; last.Key == tierSetting && last.Value == cpu.Best().String() {
			last.Value, last.Shown = tier.String(), tier.String()
		}
		return all
	}
	flag := func(steps string) Setting { return Setting{"--profile", steps, strconv.Quote(steps)} }
	one := settings(cpu.AVX512, "a", flag(""))
	for want, other := range map[string][]Setting{
		`--profile is "" on rank 0, but "steps=1" on rank 2: start all ranks with the same flags and the same --config`:                        settings(cpu.AVX512, "a", flag("steps=1")),
		"the file of replay_routes is " + file + " (SHA-256 ca978112ca1b) on rank 0, but " + file + " (SHA-256 3e23e8160039) on rank 2: start": settings(cpu.AVX512, "b", flag("")),
		"the instruction tier is avx512 on rank 0, but avx2 on rank 2: set SPMOE_CPU for all ranks":                                            settings(cpu.AVX2, "a", flag("")),
	} {
		err := disagreement([][]Setting{one, one, other}, (&collective.Placement{First: []int{0}}).Describe)
		if err == nil || !strings.HasPrefix(err.Error(), "the ranks do not agree: "+want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Hosts that disagree end without a step, each with the same error.
func TestHostsWithOtherSettings(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, nil)
	other := cfg
	other.Optimizer.LR *= 2
	said, errs := trainOnHosts(t, 2, []config.Config{freshRun(t, cfg), freshRun(t, other)}, "")
	for h, err := range errs {
		if !errors.As(err, new(*DisagreementError)) || !strings.Contains(err.Error(), "optimizer.lr is ") || len(said[h].steps) > 0 {
			t.Errorf("host %d ends with %v after %d steps", h, err, len(said[h].steps))
		}
	}
}

// freshRun returns a configuration with a folder of its own.
func freshRun(t *testing.T, cfg config.Config) config.Config {
	cfg.Out = filepath.Join(t.TempDir(), "run")
	return cfg
}
