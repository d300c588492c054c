package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/internal/testing/need"
)

// check runs check.py, and returns what it prints about each file.
func check(t *testing.T, schema string, files ...string) (good bool, said map[string]string) {
	t.Helper()
	out, err := exec.Command("python3", append([]string{"check.py", "--schema", schema}, files...)...).CombinedOutput()
	if e, failed := err.(*exec.ExitError); err != nil && (!failed || e.ExitCode() != 1) || strings.Contains(string(out), "Traceback") {
		t.Fatalf("check.py %q: %v\n%s", files, err, out)
	}
	said = map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, what, _ := strings.Cut(line, ": ")
		said[name] += what
	}
	return err == nil, said
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMPIJob: the MPIJob that the documentation shows is good, and no copy with a mistake in it is.
func TestMPIJob(t *testing.T) {
	if out, err := exec.Command("python3", "-c", "import yaml, jsonschema").CombinedOutput(); err != nil {
		need.Missing(t, "no Python with yaml and jsonschema (Debian: python3-yaml, python3-jsonschema): %v %s", err, out)
	}
	// A cluster's CRD has its schemas in an envelope.
	crd := file(t, "crd.yaml", `
kind: CustomResourceDefinition
spec:
  versions:
    - name: v1
      served: false
      schema: {openAPIV3Schema: {type: object}}
    - name: v2beta1
      served: true
      schema:
        openAPIV3Schema:
`+"          "+strings.ReplaceAll(read(t, "mpijob.schema.yaml"), "\n", "\n          "))
	job := read(t, "mpijob.yaml")
	for name, schema := range map[string]string{"schema": "mpijob.schema.yaml", "CRD": crd} {
		t.Run(name, func(t *testing.T) {
			if good, said := check(t, schema, "mpijob.yaml"); !good || said["mpijob.yaml"] != "good\n" {
				t.Errorf("mpijob.yaml: %v", said)
			}
			mistakes := []struct{ old, mistake, want string }{
				{"apiVersion: kubeflow.org/v2beta1", "apiVersion: kubeflow.org/v1", "v1"},
				{"  name: spmoe\n", "  named: spmoe\n", "'named' was unexpected"},
				{"slotsPerWorker", "slotPerWorker", "spec: Additional properties are not allowed ('slotPerWorker' was unexpected)"},
				{"replicas: 1", "replicas: 2", "there is one launcher"},
				{"mpiImplementation: OpenMPI", "mpiImplementation: openmpi", "'openmpi' is not one of"},
				{"  name: spmoe\n", "  name: Sparse_MoE\n", "no host name"},
				{"            - name: runs\n              persistent", "            - name: data\n              persistent", "container 'ranks' mounts volume 'runs'"},
				{"slotsPerWorker: 8", "slotsPerWorker: 8\n  slotsPerWorker: 4", "'slotsPerWorker' occurs twice"},
			}
			files := make([]string, len(mistakes))
			for i, m := range mistakes {
				wrong := strings.Replace(job, m.old, m.mistake, 1)
				if wrong == job {
					t.Errorf("mpijob.yaml has no %q", m.old)
				}
				files[i] = file(t, "wrong.yaml", wrong)
			}
			good, said := check(t, schema, files...)
			if good {
				t.Error("check.py ends with 0")
			}
			for i, m := range mistakes {
				if got := said[files[i]]; !strings.Contains(got, m.want) {
					t.Errorf("with %q, not %q: %s", m.mistake, m.old, got)
				}
			}
		})
	}
}
