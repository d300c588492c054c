package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// shortRecipe replaces the amounts in a script of docs/recipes. Its stages then take a second.
var shortRecipe = []struct{ old, new string }{
	{`--steps \d+`, "--steps 30 --report=false --set model.experts=8"}, {`--seq \d+`, "--seq 32"}, {`--vocab \d+`, "--vocab 300"},
	{`--max-tokens[ =]-?\d+`, "--max-tokens 10"}, {`--eval-every \d+`, "--eval-every 0"},
	{`--set eval_sequences=\d+`, "--set eval_sequences=8 --set sample_tokens=0"}, {`--save-every 2m`, ""},
	{`--set log_every=\d+`, "--set log_every=5 --save-every 2"}, {`--set optimizer.warmup=\d+`, "--set optimizer.warmup=2"},
}

// recipeScript starts a script of docs/recipes in its short form.
func recipeScript(t *testing.T, name string, args ...string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(ownText), "../docs/recipes", name))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(string(text), " train --data ", " train "+strings.Join(tinyModel, " ")+" --data ", 1)
	for _, s := range shortRecipe {
		script = regexp.MustCompile(s.old).ReplaceAllString(script, s.new)
	}
	bin, log := t.TempDir(), &lockedBuffer{}
	if err := os.Symlink(self, filepath.Join(bin, "launcher")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{write(t, filepath.Join(bin, name), script)}, args...)...)
	cmd.Env = append(os.Environ(), asLauncher+"=1", "OUT=out", "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, log
}

// The scripts in docs/recipes run to their end. One that was killed while it trained continues when
// it is run again, and keeps what is there.
func TestRecipeScripts(t *testing.T) {
	scripts, err := filepath.Glob("../docs/recipes/night*.sh")
	if err != nil || len(scripts) < 2 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	data := text(t)
	for _, script := range scripts {
		t.Chdir(t.TempDir())
		cmd, log := recipeScript(t, filepath.Base(script), data)
		if err := cmd.Wait(); err != nil || !strings.HasSuffix(log.String(), "out/exported\n") {
			t.Errorf("%s: %v: %s", script, err, log.String())
		}
	}

	const name = "five-minutes-2-cores.sh"
	t.Chdir(t.TempDir())
	cmd, log := recipeScript(t, name, data)
	await(t, "a checkpoint", func() bool { return strings.Contains(log.String(), "saved out/model/step-") })
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err := cmd.Wait(); err == nil || strings.Contains(log.String(), "validation loss:") {
		t.Fatalf("killed: %v: %s", err, log.String())
	}
	var whole map[string]string
	for _, trains := range []bool{true, false} {
		cmd, log := recipeScript(t, name, data)
		err := cmd.Wait()
		if said := log.String(); err != nil || strings.Contains(said, "after step 0") || strings.Contains(said, "after step 30") != trains {
			t.Errorf("again: %v: %s", err, said)
		}
		if got := files(t, "out"); trains {
			whole = got
		} else {
			same(t, got, whole)
		}
	}
	for _, path := range []string{"tokenizer.json", "tokens.arrow", "sample.txt", "exported/model.safetensors", "exported/tokenizer.json"} {
		if whole[path] == "" {
			t.Errorf("no %s", path)
		}
	}
}
