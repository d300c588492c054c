package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/training"
)

// A run in two parts is the run in one part, bit for bit: losses, state, and what is reported at
// the end. The same command goes on too, and another command with the same folder is refused.
func TestResume(t *testing.T) {
	data := text(t)
	args := tiny(data, append(jsonLog, "-np", "2", "--out", "run", "--save-every", "3", "--set", "keep=9")...)
	t.Chdir(t.TempDir())
	straight := succeed(t, args...)
	want := files(t, ".")
	all, end := losses(t, straight), jsonEvents(t, straight, "done")[0]

	for name, again := range map[string][]string{
		"the same command": args,
		"resume":           append([]string{"train", "--resume", "-np", "2", "--out", "run"}, jsonLog...),
	} {
		if err := errors.Join(os.RemoveAll("run/step-00000006"), os.RemoveAll("run/config.toml")); err != nil {
			t.Fatal(err)
		}
		out := succeed(t, again...)
		same(t, files(t, "."), want)
		rest := losses(t, out)
		for step := 4; step <= 6; step++ {
			if len(rest) != 3 || rest[step] != all[step] {
				t.Errorf("%s: losses %v, in one part %v", name, rest, all)
			}
		}
		done := jsonEvents(t, out, "done")[0]
		for _, field := range []string{"first_loss", "last_loss", "first_held_out_loss", "last_held_out_loss", "sample"} {
			if done[field] != end[field] {
				t.Errorf("%s: %s is %v, in one part %v", name, field, done[field], end[field])
			}
		}
		if start := jsonEvents(t, out, "start")[0]; start["from_step"] != 3.0 || start["resumed"] != "run/step-00000003" {
			t.Errorf("%s starts with %v", name, start)
		}
	}
	refuse(t, cli.ExitUsage, append(args, "--seed", "9"), "holds step-00000006 of an earlier run")
	before := files(t, ".")
	rest := jsonEvents(t, succeed(t, append(jsonLog, "train", "--resume", "-np", "1", "--out", "run")...), "")
	if same(t, files(t, "."), before); len(rest) != 1 || rest[0]["event"] != "complete" || rest[0]["last_held_out_loss"] != end["last_held_out_loss"] {
		t.Errorf("nothing was left to do; it says %v, before %v", rest, end)
	}
}

// defaults returns the settings of a flavor, and their text.
func defaults(t testing.TB, flavor string) (config.Config, []byte) {
	t.Helper()
	cfg, err := config.Default(flavor)
	if err != nil {
		t.Fatal(err)
	}
	text, err := config.TOML(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, text
}

// The configuration of an earlier version, which had other defaults, is that of the same command
// today. A checkpoint without optimizer.moments has FP32 moments, also of a flavor that now begins
// with BF16.
func TestSameConfig(t *testing.T) {
	debug, text := defaults(t, "debug")
	old := without(t, strings.Replace(string(text), "save_every = '10m'", "save_every = 0", 1), "save_retry = '10m'\n")
	slice, sliceText := defaults(t, "671B-slice")
	fp32 := slice
	fp32.Optimizer.Moments = "fp32"
	without32 := without(t, string(sliceText), "moments = 'bf16'\n")
	for _, c := range []struct {
		text string
		cfg  config.Config
		same bool
	}{
		{string(text), debug, true},
		{old, debug, true},
		{strings.Replace(old, "seed = 1\n", "seed = 2\n", 1), debug, false},
		{"not = 'toml", debug, false},
		{string(sliceText), slice, true},
		{without32, slice, false},
		{string(sliceText), fp32, false},
		{without32, fp32, true},
	} {
		if training.SameConfig([]byte(c.text), c.cfg) != c.same {
			t.Errorf("the same run %t, want %t: %s", !c.same, c.same, c.text)
		}
	}
}

// without returns a configuration without one of its lines.
func without(t *testing.T, text, line string) string {
	t.Helper()
	short := strings.Replace(text, line, "", 1)
	if short == text {
		t.Fatalf("the configuration has other keys than this test: %s", text)
	}
	return short
}

// A configuration of a version without data_rules has the first, which are refused: that of a
// checkpoint, and a run's config.toml that is given as --config. A new run has the newest, and a
// configuration file of a few keys too. A command whose run is under way keeps what the run has.
func TestDataRules(t *testing.T) {
	_, config := defaults(t, "debug")
	old := without(t, string(config), "data_rules = 3\n")
	for text, want := range map[string]int{string(config): 3, old: 1, "seq = 64\nbatch = 4\n": 3, "": 3, "data_rules = 2\n": 2} {
		if got, err := cli.Resolve(cli.TrainDefaults, "", []byte(text), nil); err != nil || got.DataRules != want {
			t.Errorf("rules %d, %v, want %d: %.60s", got.DataRules, err, want, text)
		}
	}
	// As an earlier version would have begun it.
	data := text(t)
	t.Chdir(t.TempDir())
	args := tiny(data, append(jsonLog, "--out", "run", "--save-every", "2")...)
	succeed(t, append(args, "--set", "data_rules=2")...)
	want := files(t, ".")
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	succeed(t, args...)
	same(t, files(t, "."), want)
	refuse(t, cli.ExitUsage, append(args, "--set", "data_rules=3"), "holds step-00000006 of an earlier run")
	refuse(t, cli.ExitUsage, append(args, "--set", "data_rules=1"), "continue that run with the launcher")
}

// A run resumes with other settings, or with other text from its start, if it is told to, and says
// so. Text in another place needs no permission. Text that has changed, without a word about it, is
// no other text to go on with.
func TestResumeWithChanges(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "run", "--steps", "2")...)
	resume := func(more string) []string { return strings.Fields("train --report=false --resume --out run " + more) }
	args := resume("--precision mxfp8 --optimizer.lr 0.001 --steps 3 --allow-changes")
	if out := succeed(t, args...); !strings.Contains(out, "steps: 2 -> 3") || !strings.Contains(out, "precision: bf16 -> mxfp8") {
		t.Errorf("the changes are missing in\n%s", out)
	}
	other := text(t)
	write(t, filepath.Join(other, "0.txt"), strings.Repeat("none of this was in the text before; ", 100))
	refuse(t, cli.ExitUsage, resume("--steps 5 --data "+other), "add --allow-changes to --data to go on with this data from its start")
	out := succeed(t, resume("--steps 6 --allow-changes --data "+other)...)
	before, _, _ := strings.Cut(out, "step: 4 ")
	if !strings.Contains(out, "NOTE: other data from step 4 on: ") || !strings.Contains(before, "validation after step 3") {
		t.Errorf("the output is\n%s", out)
	}
	moved := filepath.Join(t.TempDir(), filepath.Base(other))
	if err := os.Rename(other, moved); err != nil {
		t.Fatal(err)
	}
	if out := succeed(t, resume("--steps 8 --set keep=3 --threads 1 --data "+moved)...); !strings.Contains(out, "step: 8 ") || strings.Contains(out, "other data") {
		t.Errorf("the output is\n%s", out)
	}
	write(t, filepath.Join(moved, "0.txt"), "changed")
	refuse(t, cli.ExitUsage, resume("--steps 9 --allow-changes"), "the checkpoint was trained on other data")
}

// A signal ends the run at the next step boundary, saved; the command that is printed finishes
// it, and the result is that of a run that was left alone.
func TestInterrupt(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := tiny(data, "-np", "2", "--out", "my run's folder")
	succeed(t, args...)
	want := files(t, ".")

	t.Chdir(t.TempDir())
	config := write(t, filepath.Join(t.TempDir(), "c.toml"), "keep = 2\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := launchTo(ctx, &watcher{[]string{"step: 2 "}, cancel}, append(args, "--config", config)...)
	if got.code != cli.ExitInterrupted || got.errOut != "" {
		t.Errorf("exit code %d, errors %q; want %d and none", got.code, got.errOut, cli.ExitInterrupted)
	}
	if strings.Contains(got.out, "step: 4") || strings.Contains(got.out, "done:") ||
		!strings.Contains(got.out, "saved my run's folder/step-00000003") {
		t.Errorf("the run did not stop and save after the step under way:\n%s", got.out)
	}
	_, command, found := strings.Cut(got.out, "interrupted after step 3 of 6; to continue: launcher ")
	if !found {
		t.Fatalf("no command to continue with:\n%s", got.out)
	}
	again, err := exec.Command("sh", "-c", `for word in `+strings.TrimSpace(command)+`; do printf '%s\n' "$word"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, strings.Split(strings.TrimSuffix(string(again), "\n"), "\n")...)
	if err := os.RemoveAll("my run's folder/step-00000003"); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, "."), want)

}

// A run whose newest checkpoint is damaged goes on from the one before, and ends as if nothing had
// happened. A damaged line in its record does not stop it, and a link in place of the record is not
// followed.
func TestResumePastDamage(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "run", "--save-every", "2", "--set", "keep=9")...)
	want := files(t, "run")
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	const shard, metrics = "run/step-00000004/rank-00000-of-00001.safetensors", "run/metrics.jsonl"
	write(t, shard, want[strings.TrimPrefix(shard, "run/")][:5000])
	got := launch("train", "--resume", "--out", "run")
	if got.code != cli.ExitOK || !strings.Contains(got.out, "resuming run/step-00000002 at step 2") || !strings.Contains(got.errOut, "step-00000004.bad") {
		t.Errorf("exit code %d, errors %q, output\n%s", got.code, got.errOut, got.out)
	}
	if err := os.RemoveAll("run/step-00000004.bad"); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, "run"), want)

	record, err := os.ReadFile(metrics)
	if err != nil {
		t.Fatal(err)
	}
	write(t, metrics, "{\"step\":null}\n"+string(record)+"\n")
	if got := launch("train", "--resume", "--steps", "7", "--out", "run"); got.code != cli.ExitOK || !strings.Contains(got.errOut, "metrics.jsonl:1: it has none of the known keys") || !strings.Contains(got.errOut, "delete the line") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	secret := write(t, filepath.Join(t.TempDir(), "secret"), "@precious\n")
	if err := errors.Join(os.Remove(metrics), os.Symlink(secret, metrics)); err != nil {
		t.Fatal(err)
	}
	if got := launch("train", "--resume", "--steps", "8", "--out", "run"); got.code != cli.ExitFailed ||
		!strings.Contains(got.errOut, metrics+": not a regular file") || strings.Contains(got.errOut, "@") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
}

// A run that was started with relative paths is resumed from another working directory.
func TestResumeFromOtherDirectory(t *testing.T) {
	data, dir := text(t), t.TempDir()
	t.Chdir(dir)
	if err := os.Rename(data, "text"); err != nil {
		t.Fatal(err)
	}
	succeed(t, "data", "train-tokenizer", "--data", "text", "--vocab", "300", "--out", "tokenizer.json")
	args := tiny("text@2", "--tokenizer", "tokenizer.json", "--steps", "3", "--set", "record_routes=true", "--out", "run")
	succeed(t, args...)
	if out := succeed(t, args...); !strings.Contains(out, "run is complete") {
		t.Errorf("the same command again prints %s", out)
	}
	succeed(t, tiny("text@2", "--init-from", "run", "--set", "replay_routes=run/routes.arrow", "--steps", "2", "--out", "second")...)
	t.Chdir(t.TempDir())
	succeed(t, "train", "--resume", "--steps", "4", "--out", filepath.Join(dir, "run"))
	succeed(t, "train", "--resume", "--steps", "3", "--out", filepath.Join(dir, "second"))
}

// A run that is resumed after its end rises to the rate of a longer schedule and says so, or goes
// on with its last rate, as the message of the complete run proposes. One that makes
// the first steps of a schedule resumes as if it had not stopped.
func TestResumeSchedule(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	rates := func(args ...string) (all []float64) {
		for _, e := range jsonEvents(t, succeed(t, append(args, jsonLog...)...), "step") {
			all = append(all, e.number("lr"))
		}
		return all
	}
	begin := tiny(data, "--set", "optimizer.decay_frac=0.5", "--set", "optimizer.min_factor=0")
	resume := func(more string) []string { return strings.Fields("train --resume --report=false " + more) }
	run := append(begin, "--out", "run")
	whole := rates(run...)
	if again, want := succeed(t, run...), "launcher train --resume --out run --steps N --set schedule_steps=6, with N above 6"; !strings.Contains(again, want) {
		t.Errorf("%q, want %q", again, want)
	}
	if err := os.CopyFS("longer", os.DirFS("run")); err != nil {
		t.Fatal(err)
	}
	if last := rates(resume("--out run --steps 12 --set schedule_steps=6")...); !slices.Equal(last, slices.Repeat(whole[5:], 6)) {
		t.Errorf("the proposal goes on with rates %g, after %g", last, whole)
	}
	part := rates(append(begin, "--steps", "2", "--set", "schedule_steps=6", "--out", "part")...)
	refuse(t, cli.ExitUsage, resume("--out part --steps 8 --set schedule_steps=4"), "schedule_steps: 6 -> 4", "--allow-changes")
	if rest := rates(resume("--out part --steps 6")...); !slices.Equal(append(part, rest...), whole) {
		t.Errorf("in two parts %g and %g, in one %g", part, rest, whole)
	}
	const note = "NOTE: the learning rate rises from 1.00e-03 in step 6 to 3.00e-03 in step 7: " +
		"its schedule was planned for 6 steps: add --set schedule_steps=6 to keep to it\n"
	if out := succeed(t, resume("--out longer --steps 12")...); !strings.Contains(out, note) {
		t.Errorf("%s\nwant %q", out, note)
	}
}
