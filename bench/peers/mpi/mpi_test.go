package main

import (
	"bytes"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

func TestParseSizes(t *testing.T) {
	got, err := parseSizes("2, 4,8")
	if want := []int{2, 4, 8}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"", "2,,4", "0", "two", "-2"} {
		if got, err := parseSizes(text); err == nil || !strings.Contains(err.Error(), "whole numbers") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want []result
		bad  string
	}{
		{`{"name":"barrier","value":2.5,"unit":"us","wrong":0}
{"name":"openmpi_all_reduce_64MiB","value":9,"unit":"us","slowest_us":8,"bytes":4}
{"name":"openmpi_library","library":"Open MPI v4"}`, []result{
			{Name: "barrier", Value: 2.5, Unit: "us"},
			{Name: "openmpi_all_reduce_64MiB", Value: 9, Unit: "us", Slowest: 8},
			{Name: "openmpi_library", Library: "Open MPI v4"},
		}, ""},
		{"", nil, "no result"},
		{`{"name":"a","wrong":3}`, nil, "a: 3 elements are wrong"},
		{`{"name":"a"} WARNING`, nil, "result 2"},
	} {
		got, err := parse(strings.NewReader(c.text))
		if c.bad == "" && (err != nil || !reflect.DeepEqual(got, c.want)) {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
		if c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) {
			t.Errorf("%s: %v, want %q", c.text, err, c.bad)
		}
	}
}

func us(name string, value float64) result { return result{Name: name, Value: value, Unit: "us"} }

func TestTable(t *testing.T) {
	var all table
	for _, run := range []struct {
		side    side
		results []result
	}{
		{side{name: "goroutines"}, []result{us("memory_copy", 9), us("barrier", 2), us("standard_dispatch_8x64_top2", 99), us("onesided_dispatch_8x64_top2", 10), {Name: "onesided_over_standard_8x64_top2", Value: 9, Unit: "x"}}},
		{side{name: "goroutines"}, []result{us("barrier", 4), us("onesided_dispatch_8x64_top2", 20)}},
		{side{name: "Open MPI", prefix: "openmpi_"}, []result{us("openmpi_barrier", 1), us("openmpi_dispatch_8x64_top2", 40), {Name: "openmpi_dedup_dispatch_8x64_top2", Value: 90, Slowest: 30, Unit: "us"}, {Name: "openmpi_single_copy_8x64_top2", Value: 1.5, Unit: "x"}, {Name: "openmpi_library", Library: "Open MPI v4"}}},
		{side{name: "Open MPI", prefix: "openmpi_"}, []result{us("openmpi_barrier", 1), us("openmpi_dispatch_8x64_top2", 120), us("openmpi_dedup_dispatch_8x64_top2", 30), {Name: "openmpi_single_copy_8x64_top2", Value: 0.5, Unit: "x"}}},
	} {
		if err := all.add(run.side, run.results); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	all.print(&b, 2)
	want := `
2 ranks
operation                        goroutines      processes       Open MPI Open MPI dedup          MPICH    MPICH dedup   /gor  /proc  d/gor d/proc
barrier                                 3.0                           1.0                                                0.38
dispatch_8x64_top2                     15.0                          80.0           30.0                                 5.00          2.25
# Open MPI v4, NOT all rows went by a single copy (CMA), but 50%: it may lack the right to trace processes
`
	if b.String() != want {
		t.Errorf("%s\nwant%s", b.String(), want)
	}
	if err := all.add(side{name: "MPICH", prefix: "mpich_"}, []result{us("barrier", 1)}); err == nil {
		t.Error("a result of another program was taken")
	}
}

// Without an MPI's tools the message names the packages.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := implementations[0].build(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "apt-get install libopenmpi-dev openmpi-bin") {
		t.Error(err)
	}
}

// Each MPI that is installed exchanges a small layer among more ranks than there may be cores, and
// refuses what it cannot do.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	for _, m := range implementations {
		t.Run(m.name, func(t *testing.T) {
			if _, err := exec.LookPath("mpicc." + m.prefix); err != nil {
				t.Skipf("there is no mpicc.%s", m.prefix)
			}
			folder := t.TempDir()
			if err := os.CopyFS(folder, sources); err != nil {
				t.Fatal(err)
			}
			program, err := m.build(t.Context(), folder)
			if err != nil {
				t.Fatal(err)
			}
			s := m.side(program)
			results, err := s.measure(t.Context(), 3, extent{groups: []string{"barrier", "all_reduce_1MiB", "exchange_33x128_top8"}, repeats: 2})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, r := range results {
				names = append(names, strings.TrimPrefix(r.Name, s.prefix))
			}
			want := []string{"library", "barrier", "all_reduce_1MiB", "dispatch_33x128_top8", "combine_33x128_top8", "round_trip_33x128_top8",
				"dedup_dispatch_33x128_top8", "dedup_combine_33x128_top8", "dedup_round_trip_33x128_top8", "single_copy_33x128_top8"}
			if !reflect.DeepEqual(names, want) {
				t.Errorf("%q\nwant %q", names, want)
			}
			_, err = s.measure(t.Context(), 2, extent{groups: []string{"exchange_33x128_top3"}, repeats: 1})
			if err == nil || !strings.Contains(err.Error(), "give 1, 2, 4 or 8 experts a token") {
				t.Errorf("three experts a token: %v", err)
			}
		})
	}
}
