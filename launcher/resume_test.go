package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/training"
)

// A run in two parts is the run in one part, bit for bit: losses, state, and what is reported at
// the end.
func TestResume(t *testing.T) {
	data := text(t)
	for _, np := range []string{"1", "2", "4"} {
		t.Run("np"+np, func(t *testing.T) {
			base := append(jsonLog, "-np", np, "--out", "run")
			t.Chdir(t.TempDir())
			straight := succeed(t, tiny(data, base...)...)
			want := files(t, ".")

			t.Chdir(t.TempDir())
			first := succeed(t, tiny(data, append(base, "--steps", "3")...)...)
			if err := os.RemoveAll("run/config.toml"); err != nil {
				t.Fatal(err)
			}
			second := succeed(t, append([]string{"train", "--resume", "--steps", "6"}, base...)...)
			if err := os.RemoveAll("run/step-00000003"); err != nil {
				t.Fatal(err)
			}
			same(t, files(t, "."), want)
			all, parts := losses(t, straight), losses(t, first)
			for step, loss := range losses(t, second) {
				if _, ok := parts[step]; ok {
					t.Errorf("step %d was made twice", step)
				}
				parts[step] = loss
			}
			for step := range 6 {
				if all[step+1] != parts[step+1] {
					t.Errorf("step %d: loss %v in one part, %v in two", step+1, all[step+1], parts[step+1])
				}
			}
			a, b := jsonEvents(t, straight, "done")[0], jsonEvents(t, second, "done")[0]
			for _, field := range []string{"first_loss", "last_loss", "first_held_out_loss", "last_held_out_loss", "sample"} {
				if a[field] != b[field] {
					t.Errorf("%s is %v in one part, %v in two", field, a[field], b[field])
				}
			}
			if start := jsonEvents(t, second, "start")[0]; start["from_step"] != 3.0 || start["resumed"] != "run/step-00000003" {
				t.Errorf("the second part starts with %v", start)
			}
		})
	}
}

// The same command again continues an interrupted run. Another command with the same folder is
// refused.
func TestSameCommand(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := tiny(data, append(jsonLog, "-np", "2", "--out", "run", "--save-every", "2")...)
	succeed(t, args...)
	want := files(t, ".")
	// As if the launcher had been killed after step 4.
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	if start := jsonEvents(t, succeed(t, args...), "start")[0]; start["from_step"] != 4.0 {
		t.Errorf("the command, given again, starts with %v", start)
	}
	same(t, files(t, "."), want)
	refuse(t, cli.ExitUsage, append(args, "--seed", "9"), "holds step-00000006 of an earlier run")
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

// The configuration of an earlier version, which had other defaults of saving, is that of the same
// command today.
func TestSameConfig(t *testing.T) {
	cfg, text := defaults(t, "debug")
	old := strings.Replace(strings.Replace(string(text), "save_every = '10m'", "save_every = 0", 1), "save_retry = '10m'\n", "", 1)
	if len(old) > len(text)-20 {
		t.Fatalf("the configuration has other keys than this test: %s", old)
	}
	for text, same := range map[string]bool{string(text): true, old: true, strings.Replace(old, "seed = 1\n", "seed = 2\n", 1): false, "not = 'toml": false} {
		if training.SameConfig([]byte(text), cfg) != same {
			t.Errorf("the same run %t, want %t: %s", !same, same, text)
		}
	}
}

// A configuration of a version without data_rules has the first: that of a checkpoint, and a run's
// config.toml that is given as --config. A new run has the newest, and a configuration file of a
// few keys too. A command whose run is under way keeps what the run has.
func TestDataRules(t *testing.T) {
	_, config := defaults(t, "debug")
	old := strings.Replace(string(config), "data_rules = 3\n", "", 1)
	if old == string(config) {
		t.Fatalf("a new run has other rules than this test: %s", config)
	}
	for text, want := range map[string]int{string(config): 3, old: 1, "seq = 64\nbatch = 4\n": 3, "": 3, "data_rules = 2\n": 2} {
		if got, err := cli.Resolve(cli.TrainDefaults, "", []byte(text), nil); err != nil || got.DataRules != want {
			t.Errorf("rules %d, %v, want %d: %.60s", got.DataRules, err, want, text)
		}
	}
	// As a version without the key would have begun it.
	data := text(t)
	t.Chdir(t.TempDir())
	args := tiny(data, append(jsonLog, "-np", "2", "--out", "run", "--save-every", "2")...)
	first := append(args[:len(args):len(args)], "--set", "data_rules=1")
	succeed(t, first...)
	want := files(t, ".")
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	if start := jsonEvents(t, succeed(t, args...), "start")[0]; start["from_step"] != 4.0 {
		t.Errorf("the command, given again, starts with %v", start)
	}
	same(t, files(t, "."), want)
	refuse(t, cli.ExitUsage, append(args, "--set", "data_rules=2"), "holds step-00000006 of an earlier run")
	refuse(t, cli.ExitUsage, append([]string{"train", "--resume", "--set", "data_rules=2", "--out", "run"}, jsonLog...), "run/step-00000006 does not fit this run: fingerprint: the checkpoint was trained on other data, or with another tokenizer or data_rules")
	refuse(t, cli.ExitUsage, append(args, "--set", "data_rules=4"), "data_rules is 4: give 1 to 3; new runs have the last")
}

// A checkpoint of a version without optimizer.moments has FP32 moments, also of a flavor that now
// begins with BF16.
func TestSameMoments(t *testing.T) {
	cfg, text := defaults(t, "671B-slice")
	old := strings.Replace(string(text), "moments = 'bf16'\n", "", 1)
	if old == string(text) {
		t.Fatalf("the flavor has other moments than this test: %s", text)
	}
	if !training.SameConfig(text, cfg) || training.SameConfig([]byte(old), cfg) {
		t.Error("BF16 moments are taken for those of an old checkpoint")
	}
	if cfg.Optimizer.Moments = "fp32"; training.SameConfig(text, cfg) || !training.SameConfig([]byte(old), cfg) {
		t.Error("FP32 moments are not taken for those of an old checkpoint")
	}
}

// A run resumes with other settings if it is told to, and says each of them.
func TestResumeWithChanges(t *testing.T) {
	data := text(t)
	first, err := os.ReadFile(filepath.Join(data, "0.txt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "run", "--steps", "2")...)
	args := strings.Fields("train --resume --out run --precision mxfp8 --optimizer.lr 0.001 --steps 3 --report=false --allow-changes")
	lines := []string{"NOTE: this differs from the run so far: steps: 2 -> 3", "precision: bf16 -> mxfp8", "optimizer.lr: 0.003 -> 0.001"}
	planned := succeed(t, append(args, "--dry-run")...)
	out := succeed(t, args...)
	for _, line := range lines {
		if !strings.Contains(out, line) || !strings.Contains(planned, line) {
			t.Errorf("%q is missing in\n%s\nor in\n%s", line, out, planned)
		}
	}
	if strings.Count(out, "NOTE:") != len(lines) || !strings.Contains(out, "step: 3 ") {
		t.Errorf("the output is\n%s", out)
	}
	// The checkpoint has the new settings, so nothing differs any more.
	if out := succeed(t, "train", "--resume", "--out", "run", "--steps", "4", "--precision", "mxfp8", "--report=false"); strings.Count(out, "NOTE:") != 1 {
		t.Errorf("the output is\n%s", out)
	}
	// Other text begins at its start, if it is named; a plain --resume then goes on in it.
	other := text(t)
	write(t, filepath.Join(other, "0.txt"), strings.Repeat("none of this was in the text before; ", 100))
	refuse(t, cli.ExitUsage, []string{"train", "--resume", "--out", "run", "--steps", "5", "--data", other}, "add --allow-changes to --data to go on with this data from its start")
	succeed(t, "train", "--report=false", "--resume", "--out", "run", "--steps", "5")
	out = succeed(t, "train", "--report=false", "--resume", "--out", "run", "--set", "keep=9", "--steps", "7", "--allow-changes", "--data", other)
	if !strings.Contains(out, "NOTE: other data from step 6 on: ") || strings.Index(out, "validation after step 5") > strings.Index(out, "step: 6 ") {
		t.Errorf("the output is\n%s", out)
	}
	if out := succeed(t, "train", "--report=false", "--resume", "--out", "run", "--steps", "8"); !strings.Contains(out, "step: 8 ") || strings.Contains(out, "other data") {
		t.Errorf("the output is\n%s", out)
	}
	for _, step := range []string{"7", "8"} {
		if err := os.RemoveAll("run/step-0000000" + step); err != nil {
			t.Fatal(err)
		}
	}
	// Text that has changed, without a word about it, is no other text to go on with.
	write(t, filepath.Join(data, "0.txt"), "changed")
	refuse(t, cli.ExitUsage, []string{"train", "--resume", "--out", "run", "--steps", "6", "--allow-changes"}, "the checkpoint was trained on other data")
	write(t, filepath.Join(data, "0.txt"), string(first))
	// More steps, other folders and text in another place need no permission.
	moved := filepath.Join(t.TempDir(), filepath.Base(data))
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	succeed(t, "train", "--resume", "--out", "run", "--steps", "6", "--data", moved, "--set", "keep=3", "--threads", "1", "--report=false")
}

// A finished run can be resumed with nothing left to do, and with another number of ranks.
func TestResumeElsewhere(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	base := append(jsonLog, "--precision", "fp32", "--out", "run")
	want := losses(t, succeed(t, tiny(data, append(base, "-np", "2")...)...))
	for _, np := range []string{"1", "4"} {
		t.Chdir(t.TempDir())
		succeed(t, tiny(data, append(base, "-np", "2", "--steps", "3")...)...)
		log := succeed(t, "train", "--resume", "--steps", "6", "-np", np, "--out", "run", "--log-format", "json")
		got := losses(t, log)
		for step := 4; step <= 6; step++ {
			if !(math.Abs(got[step]-want[step]) < 1e-4) {
				t.Errorf("step %d on %s ranks after 3 steps on 2: loss %v, on 2 throughout %v", step, np, got[step], want[step])
			}
		}
		before := files(t, ".")
		again := succeed(t, "train", "--resume", "-np", np, "--out", "run", "--log-format", "json")
		same(t, files(t, "."), before)
		a, b := jsonEvents(t, log, "done")[0], jsonEvents(t, again, "")
		if len(b) != 1 || b[0]["event"] != "complete" || b[0].number("step") != 6 || b[0]["last_held_out_loss"] != a["last_held_out_loss"] {
			t.Errorf("nothing was left to do; it says %v, before %v", b, a)
		}
	}
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
	ctx, cancel := context.WithCancel(context.Background())
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

func TestInterruptJSON(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for name, c := range map[string]struct {
		when        []string
		code, steps int
	}{
		"before the first step": {[]string{`"event":"start"`}, cli.ExitInterrupted, 1},
		"in the middle":         {[]string{`"event":"step"`, `"step":2,`}, cli.ExitInterrupted, 3},
		"after the last save":   {[]string{`"event":"saved"`}, cli.ExitOK, 6},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			got := launchTo(ctx, &watcher{c.when, cancel}, tiny(data, append(jsonLog, "-np", "2")...)...)
			if got.code != c.code || got.errOut != "" {
				t.Errorf("exit code %d, errors %q; want %d and none", got.code, got.errOut, c.code)
			}
			done := jsonEvents(t, got.out, "done")[0]
			if len(jsonEvents(t, got.out, "step")) != c.steps || done.number("step") != float64(c.steps) ||
				done["interrupted"] != (c.code != cli.ExitOK) {
				t.Errorf("%d steps, want %d; done says %v", len(jsonEvents(t, got.out, "step")), c.steps, done)
			}
			if saved := jsonEvents(t, got.out, "saved"); len(saved) != 1 || saved[0].number("step") != float64(c.steps) {
				t.Errorf("saved %v, want once, after step %d", saved, c.steps)
			}
		})
	}
}

// A run goes on when a checkpoint cannot be saved, and says so; if the last one cannot, it ends
// with a code of its own and a message that names the step.
func TestFailure(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	breakRun := func() {
		if err := os.RemoveAll("run"); err != nil {
			t.Error(err)
		}
		write(t, "run", "a file in the way")
	}
	got := launchTo(context.Background(), &watcher{[]string{"step: 2 "}, breakRun}, tiny(data, "-np", "2", "--out", "run", "--save-every", "4", "--set", "save_retry=0s")...)
	if got.code != cli.ExitUnsaved || !strings.Contains(got.errOut, "the checkpoint of step 6, the last of this run, was not saved") {
		t.Errorf("exit code %d, errors %q", got.code, got.errOut)
	}
	if !strings.Contains(got.out, "ALARM: the checkpoint of step 4 was not saved, training goes on") ||
		!strings.Contains(got.out, "step: 6 ") ||
		strings.Contains(got.out, "done:") {
		t.Errorf("output\n%s", got.out)
	}
}

// A run whose newest checkpoint is damaged goes on from the one before, and ends as if nothing had
// happened.
func TestResumePastDamage(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "run", "--save-every", "2", "--set", "keep=9")...)
	want := files(t, "run")
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	const shard = "run/step-00000004/rank-00000-of-00001.safetensors"
	write(t, shard, want[strings.TrimPrefix(shard, "run/")][:5000])
	got := launch("train", "--resume", "--out", "run")
	if got.code != cli.ExitOK || !strings.Contains(got.out, "resuming run/step-00000002 at step 2") {
		t.Errorf("exit code %d, output\n%s", got.code, got.out)
	}
	for _, text := range []string{"warning", "run/step-00000004", "rank-00000-of-00001.safetensors has 5000 bytes", "set aside as step-00000004.bad", "continuing from step-00000002"} {
		if !strings.Contains(got.errOut, text) {
			t.Errorf("the message is %q, want %q in it", got.errOut, text)
		}
	}
	if err := os.RemoveAll("run/step-00000004.bad"); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, "run"), want)
}

func TestProfile(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--steps", "1", "--cpuprofile", "cpu.out")...)
	if data, err := os.ReadFile("cpu.out"); err != nil || len(data) == 0 {
		t.Errorf("the profile has %d bytes, error %v", len(data), err)
	}
	refuse(t, cli.ExitUsage, tiny(data, "--steps", "1", "--cpuprofile", "none/cpu.out"), "none/cpu.out")
	if got := launchTo(context.Background(), io.Discard, tiny(data, "--steps", "1")...); got.code != cli.ExitOK {
		t.Errorf("the next run ends with %d: %s", got.code, got.errOut)
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

// A damaged line in the record of a run does not stop it, and a link in place of the record is not
// followed.
func TestResumeWithDamagedRecord(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := tiny(data, "--steps", "3", "--out", "run")
	succeed(t, args...)
	record, err := os.ReadFile("run/metrics.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	write(t, "run/metrics.jsonl", "{\"step\":{\"step\":-1}}\n"+string(record)+"\n")
	resume := []string{"train", "--resume", "--steps", "4", "--out", "run"}
	if got := launch(resume...); got.code != cli.ExitOK || !strings.Contains(got.errOut, "metrics.jsonl:1: Step.Step is -1") || !strings.Contains(got.errOut, "delete the line") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	secret := write(t, filepath.Join(t.TempDir(), "secret"), "@precious\n")
	if err := errors.Join(os.Remove("run/metrics.jsonl"), os.Symlink(secret, "run/metrics.jsonl")); err != nil {
		t.Fatal(err)
	}
	if got := launch("train", "--resume", "--steps", "5", "--out", "run"); got.code != cli.ExitFailed ||
		!strings.Contains(got.errOut, "run/metrics.jsonl: not a regular file") ||
		strings.Contains(got.errOut, "@") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
}
