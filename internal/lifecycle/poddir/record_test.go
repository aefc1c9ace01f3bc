// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
)

// recordPath returns the path of the record in a directory.
func recordPath(d poddir.Dir) string { return filepath.Join(string(d), "record.json") }

// setTestedFields sets all tested fields of a record.
func setTestedFields(now *poddir.Record) {
	started := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Local())
	now.Status = &corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, PodIP: "10.0.0.7"}
	now.PostStartPending = []string{"main-0"}
	now.Sizes = map[string]string{"main-0": "cpu=250/500 memory=0/0"}
	now.Sized = ";main cpu=250/500 memory=0/0"
}

func TestRecordSurvivesRestart(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	r := poddir.NewRecorder(d, "default/a")
	require.NoError(t, r.Load(), "a missing record is no error")
	require.Zero(t, r.Get())
	require.NoDirExists(t, string(d), "Load creates no directory")
	require.True(t, r.IsSaved())

	r.SetSource("manifests")
	require.NoError(t, r.Update(setTestedFields))
	require.True(t, r.IsSaved())
	requireFile(t, recordPath(d), `{"version":1,"pod":"default/a","source":"manifests",`+
		`"status":{"phase":"Running","podIP":"10.0.0.7","startTime":"2026-01-01T12:00:00Z"},`+
		`"postStartPending":["main-0"],"sizes":{"main-0":"cpu=250/500 memory=0/0"},`+
		`"sized":";main cpu=250/500 memory=0/0"}`, 0o600)

	next := poddir.NewRecorder(d, "default/a")
	require.NoError(t, next.Load())
	require.Equal(t, r.Get(), next.Get())
	require.NoError(t, next.Update(func(now *poddir.Record) { *now = poddir.Record{} }))
	requireFile(t, recordPath(d), `{"version":1,"pod":"default/a"}`, 0o600)
}

// A large record is trimmed to a readable size. The container states are kept if possible, and the phase always.
func TestLargeRecordTrimmedAndReadable(t *testing.T) {
	for name, test := range map[string]struct {
		containers int
		message    int
		kept       int
	}{
		"long messages":   {1000, 8 << 10, 1000},
		"many containers": {100_000, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := poddir.DirOf(t.TempDir(), "uid-a")
			st := &corev1.PodStatus{Phase: corev1.PodFailed}
			for range test.containers {
				st.ContainerStatuses = append(st.ContainerStatuses, corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, Message: strings.Repeat("x", test.message)},
				}})
			}
			require.NoError(t, poddir.NewRecorder(d, "default/a").Update(func(now *poddir.Record) { now.Status = st }))
			next := poddir.NewRecorder(d, "default/a")
			require.NoError(t, next.Load())
			require.Equal(t, corev1.PodFailed, next.Get().Status.Phase)
			require.Len(t, next.Get().Status.ContainerStatuses, test.kept)
			for _, c := range next.Get().Status.ContainerStatuses {
				require.EqualValues(t, 7, c.State.Terminated.ExitCode)
			}
			info, err := os.Stat(recordPath(d))
			require.NoError(t, err)
			require.LessOrEqual(t, info.Size(), int64(4<<20))
		})
	}
}

// An unchanged record is not written again.
func TestRecordWrittenOnlyIfChanged(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	r := poddir.NewRecorder(d, "default/a")
	require.NoError(t, r.Update(setTestedFields))
	before, err := os.Stat(recordPath(d))
	require.NoError(t, err)
	unchanged := func(r *poddir.Recorder) {
		require.NoError(t, r.Update(setTestedFields))
		after, err := os.Stat(recordPath(d))
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), "the record file is not replaced")
	}
	unchanged(r)
	next := poddir.NewRecorder(d, "default/a")
	require.NoError(t, next.Load())
	unchanged(next)
}

// An invalid record is reported, and its file is kept until the next update.
func TestLoadOfInvalidRecord(t *testing.T) {
	tests := map[string]struct{ content, want string }{
		"empty":                 {"", "unexpected end of JSON input"},
		"half":                  {`{"version":1,"sta`, "unexpected end of JSON input"},
		"newer version":         {`{"version":2,"sized":"x"}`, "version 2 is not 1"},
		"without version":       {`{"sized":"x"}`, "version 0 is not 1"},
		"field of another type": {`{"version":1,"sized":7}`, "cannot unmarshal number"},
		"JSON list":             {`[]`, "cannot unmarshal array"},
		"with more":             {`{"version":1,"sized":"x"} {}`, "invalid character"},
		"of zeros":              {strings.Repeat("\x00", 4096), "invalid character"},
		"nested":                {`{"version":1,"status":` + strings.Repeat("[", 20000), "exceeded max depth"},
		"one byte above 32 MiB": {`{"version":1}` + strings.Repeat(" ", 32<<20-12), "more than 33554432 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := poddir.DirOf(t.TempDir(), "uid-a")
			write(t, recordPath(d), tt.content)
			r := poddir.NewRecorder(d, "default/a")
			err := r.Load()
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, recordPath(d), "the error names the file")
			require.Zero(t, r.Get())
			requireFile(t, recordPath(d), tt.content, 0o600)

			require.NoError(t, r.Update(setTestedFields))
			next := poddir.NewRecorder(d, "default/a")
			require.NoError(t, next.Load(), "Update replaces the invalid record")
			require.Equal(t, r.Get(), next.Get())
		})
	}
}

// After a failed write the record stays in memory and is written by the next Update.
func TestUpdateRetriesFailedWrite(t *testing.T) {
	tests := map[string]func(t *testing.T, root, uid string) (mend func() error){
		"file in place of the root": func(t *testing.T, root, _ string) func() error {
			require.NoError(t, os.RemoveAll(root))
			write(t, root, "")
			return func() error { return os.Remove(root) }
		},
		"file in place of the directory": func(t *testing.T, root, uid string) func() error {
			path := filepath.Join(root, uid)
			write(t, path, "")
			return func() error { return os.Remove(path) }
		},
		"directory in place of the record": func(t *testing.T, root, uid string) func() error {
			path := filepath.Join(root, uid, "record.json")
			require.NoError(t, os.MkdirAll(path, 0o700))
			return func() error { return os.Remove(path) }
		},
	}
	for name, breaks := range tests {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "pods")
			require.NoError(t, os.Mkdir(root, 0o700))
			mend := breaks(t, root, "uid-a")
			d := poddir.DirOf(root, "uid-a")
			r := poddir.NewRecorder(d, "default/a")
			require.Error(t, r.Update(setTestedFields))
			require.False(t, r.IsSaved())
			require.Equal(t, "10.0.0.7", r.Get().Status.PodIP, "the record in memory is updated")

			require.NoError(t, mend())
			require.False(t, r.IsSaved(), "the record is saved only by the next Update")
			require.NoError(t, r.Update(func(*poddir.Record) {}))
			require.True(t, r.IsSaved())
			next := poddir.NewRecorder(d, "default/a")
			require.NoError(t, next.Load())
			require.Equal(t, r.Get(), next.Get())
		})
	}
}

// A recorder without a directory keeps the record only in memory.
func TestRecorderWithoutFile(t *testing.T) {
	r := poddir.NewRecorder("", "default/a")
	require.NoError(t, r.Load())
	require.NoError(t, r.Update(setTestedFields))
	require.True(t, r.IsSaved())
	require.Equal(t, []string{"main-0"}, r.Get().PostStartPending)
}

// Load removes the temporary file of a killed writer, and keeps other files.
func TestLoadRemovesTemporaryFiles(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	left, others := filepath.Join(string(d), ".record.json.123.tmp"), filepath.Join(string(d), ".record.json.bak.tmp")
	write(t, left, "")
	write(t, others, "")
	require.NoError(t, poddir.NewRecorder(d, "default/a").Load())
	require.NoFileExists(t, left)
	require.FileExists(t, others)
}

// RecordedPods lists neither directories without a record nor directories with unsafe names.
func TestRecordedPodsListsPodsWithRecord(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"uid-a/record.json", "uid-b/record.json", "foreign/file", ".hidden/record.json", "record.json", "agent-id"} {
		write(t, filepath.Join(root, path), "{}")
	}
	require.NoError(t, os.Symlink(filepath.Join(root, "uid-a/record.json"), filepath.Join(root, "foreign/record.json")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "directory/record.json"), 0o700))
	uids, err := poddir.RecordedPods(root)
	require.NoError(t, err)
	require.Equal(t, []string{"uid-a", "uid-b"}, uids)

	uids, err = poddir.RecordedPods(filepath.Join(root, "none"))
	require.NoError(t, err)
	require.Empty(t, uids)
	_, err = poddir.RecordedPods(filepath.Join(root, "agent-id"))
	require.Error(t, err)
}

// FuzzLoad loads random data as a record. After a valid or failed Load, an update and a restart result in the same record.
func FuzzLoad(f *testing.F) {
	f.Add(`{"version":1,"pod":"default/a","status":{"phase":"Running"},"postStartPending":["main-0"]}`)
	f.Add(`{"version":1,"sizes":{"c0":"cpu=1/2 memory=3/4"},"sized":"","status":{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	f.Add(`{"version":1,"status":{"containerStatuses":[{"resources":{"limits":{"cpu":"100m"}}}]}}`)
	f.Add(`{"version":2}`)
	f.Add(`{"version":1,"status":null}`)
	f.Add("{")
	d := poddir.DirOf(f.TempDir(), "uid-a")
	f.Fuzz(func(t *testing.T, content string) {
		write(t, recordPath(d), content)
		r := poddir.NewRecorder(d, "default/a")
		if err := r.Load(); err != nil {
			require.Zero(t, r.Get())
			require.ErrorContains(t, err, recordPath(d))
		}
		require.NoError(t, r.Update(func(*poddir.Record) {}))
		next := poddir.NewRecorder(d, "default/a")
		require.NoError(t, next.Load())
		assert.JSONEq(t, podtest.JSON(r.Get()), podtest.JSON(next.Get()))
	})
}
