package trainer

// What decides the bits of a run must be the same on all ranks. They compare it before the first
// step, because hosts may have been started with other flags, files, variables or CPUs.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"spmoe/collective"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/tensor/cpu"
)

// mayDiffer lists the keys of the configuration that may differ between ranks. A new key is
// compared unless it is added here.
var mayDiffer = map[string]bool{
	"threads": true, "out": true, "keep": true, "log_every": true,
	"data": true, "data_field": true, // the text is compared, wherever it is
}

// Setting is something that must be the same on all ranks of a run.
type Setting struct {
	Key   string
	Value string // is compared
	Shown string // describes it
}

const (
	textSetting  = "the text"
	stateSetting = "the first state"
	tierSetting  = "the instruction tier"
	givenText    = "that of --data" // begins what describes text that is not the built-in one
)

// DisagreementError says that ranks differ in something that must be the same. All ranks get the
// same one, before their first step.
type DisagreementError struct{ text string }

// Error implements error.
func (e *DisagreementError) Error() string { return e.text }

// agree returns a [DisagreementError] unless this run is the same on all ranks. It is collective,
// and uses nothing that depends on the configuration.
func (j *Job) agree(c *collective.Comm) error {
	if !c.Shared() && len(c.Hosts()) == 1 {
		return nil // goroutines of one process
	}
	mine, err := j.settings()
	if err != nil {
		return err
	}
	h := sha256.New()
	for _, s := range mine {
		fmt.Fprintf(h, "%q %q\n", s.Key, s.Value)
	}
	sum := h.Sum(nil)
	sums := make([]byte, c.Size()*len(sum))
	if err := collective.AllGather(c, sums, sum); err != nil {
		return err
	}
	if string(sums) == strings.Repeat(string(sum), c.Size()) {
		return nil
	}
	text, err := json.Marshal(mine) // no rank's text is empty, so all get all
	if err != nil {
		return err
	}
	texts, err := state.GatherTexts(c, string(text))
	if err != nil {
		return err
	}
	all := make([][]Setting, len(texts))
	for r, text := range texts {
		if err := json.Unmarshal([]byte(text), &all[r]); err != nil {
			return fmt.Errorf("the settings of %s: %w", c.Placement().Describe(r), err)
		}
	}
	return disagreement(all, c.Placement().Describe)
}

// settings lists what must be the same on all ranks.
func (j *Job) settings() (all []Setting, err error) {
	config.EachSetting(j.cfg, func(key config.Key, v any) {
		if !mayDiffer[key.Name] {
			all = append(all, Setting{key.Name, fmt.Sprintf("%#v", v), config.Value(v)})
		}
	})
	all = append(all, j.Settings...)
	add := func(key, digest, shown string) {
		all = append(all, Setting{key, digest, fmt.Sprintf("%s (SHA-256 %.12s)", shown, digest)})
	}
	if path := j.cfg.ReplayRoutes; path != "" {
		digest, err := fileDigest(path)
		if err != nil {
			return nil, fmt.Errorf("replay_routes: %w", err)
		}
		add("the file of replay_routes", digest, path)
	}
	switch {
	case j.resume != nil:
		add(stateSetting, j.resume.Digest(), fmt.Sprintf("step %d", j.resume.Step()))
	case j.source != nil:
		digest, err := j.source.Digest()
		if err != nil {
			return nil, err
		}
		add(stateSetting, digest, j.source.Path())
	default:
		all = append(all, Setting{stateSetting, "", "that of a new run"})
	}
	text := j.corpus.Builtin
	if text == "" {
		text = fmt.Sprintf("%s %q", givenText, j.cfg.Data)
	}
	add(textSetting, j.train.Fingerprint(), text)
	return append(all, Setting{tierSetting, cpu.Best().String(), cpu.Best().String()}), nil
}

// fileDigest returns the SHA-256 of a file.
func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// disagreement names the first setting in which ranks differ, with its value on rank 0 and on the
// first rank with another one. where names a rank.
func disagreement(all [][]Setting, where func(rank int) string) error {
	for i, s := range all[0] {
		for r, other := range all {
			shown := "not there"
			if i < len(other) && other[i].Key == s.Key {
				if shown = other[i].Shown; other[i].Value == s.Value {
					continue
				}
			}
			what := "start all ranks with the same flags and the same --config"
			switch s.Key {
			case textSetting:
				what = "install the same Go on all hosts, or give the same --data"
				if strings.HasPrefix(s.Shown, givenText) || strings.HasPrefix(shown, givenText) {
					what = "give all ranks --data and data_field with the same text; it may lie elsewhere on each host"
				}
			case stateSetting:
				what = "give --out or --init-from a folder with the same content on all hosts"
			case tierSetting:
				what = fmt.Sprintf("set %s for all ranks to a tier that all CPUs have (launcher --version lists them)", cpu.EnvVar)
			}
			return &DisagreementError{fmt.Sprintf("the ranks do not agree: %s is %s on %s, but %s on %s: %s", s.Key, s.Shown, where(0), shown, where(r), what)}
		}
	}
	return errors.New("the settings of ranks differ in bytes that are not UTF-8: give names that are")
}
