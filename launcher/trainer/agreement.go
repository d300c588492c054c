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
	"slices"
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
	// No rank's text is empty, so all get all.
	text, err := json.Marshal(rankSettings{mine, cpu.Tiers()})
	if err != nil {
		return err
	}
	texts, err := state.GatherTexts(c, string(text))
	if err != nil {
		return err
	}
	all := make([]rankSettings, len(texts))
	for r, text := range texts {
		if err := json.Unmarshal([]byte(text), &all[r]); err != nil {
			return fmt.Errorf("the settings of %s: %w", c.Placement().Describe(r), err)
		}
	}
	if err := disagreement(all, c.Placement().Describe); err != nil {
		return err
	}
	return errors.New("the settings of ranks differ in bytes that are not UTF-8: give names that are")
}

// rankSettings is what a rank tells the others if they differ.
type rankSettings struct {
	Settings []Setting
	Tiers    []cpu.Tier // that its CPU has
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
	for _, f := range j.namedFiles() {
		digest, err := fileDigest(f.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.key, err)
		}
		add("the file of "+f.key, digest, f.path)
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

// namedFile is a file that a setting names.
type namedFile struct{ key, path string }

// namedFiles lists the files whose content decides what a run computes. The text, the tokenizer and
// the first weights have fingerprints of their own, and the configuration has the text of a recipe.
func (j *Job) namedFiles() (all []namedFile) {
	if j.cfg.ReplayRoutes != "" {
		all = append(all, namedFile{"replay_routes", j.cfg.ReplayRoutes})
	}
	return all
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

// mostDifferences is the number of differences that an error lists.
const mostDifferences = 6

// disagreement describes how ranks differ: for each setting, rank 0 and the first rank with another
// value. It is nil if they agree. where names a rank.
func disagreement(all []rankSettings, where func(rank int) string) error {
	var differ, advice []string
	more := 0
	for i, s := range all[0].Settings {
		other := slices.IndexFunc(all, func(r rankSettings) bool {
			return i >= len(r.Settings) || r.Settings[i].Key != s.Key || r.Settings[i].Value != s.Value
		})
		if other < 0 {
			continue
		}
		shown := "not there"
		if of := all[other].Settings; i < len(of) && of[i].Key == s.Key {
			shown = of[i].Shown
		}
		if len(differ) == mostDifferences {
			more++
			continue
		}
		differ = append(differ, fmt.Sprintf("%s is %s on %s, but %s on %s", s.Key, s.Shown, where(0), shown, where(other)))
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
			what = fmt.Sprintf("set %s=%s for all ranks", cpu.EnvVar, commonTier(all))
		}
		if !slices.Contains(advice, what) {
			advice = append(advice, what)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	if more > 0 {
		differ = append(differ, fmt.Sprintf("and %d more differ", more))
	}
	return &DisagreementError{fmt.Sprintf("the ranks do not agree: %s: %s", strings.Join(differ, "; "), strings.Join(advice, "; "))}
}

// commonTier returns the best tier that the CPUs of all ranks have.
func commonTier(all []rankSettings) cpu.Tier {
	best := cpu.Generic
	for _, t := range all[0].Tiers {
		if !slices.ContainsFunc(all, func(r rankSettings) bool { return !slices.Contains(r.Tiers, t) }) {
			best = t
		}
	}
	return best
}
