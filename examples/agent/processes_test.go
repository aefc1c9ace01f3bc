// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// newProcesses makes the files of an agent whose pods are plain processes. They end with the test, whatever became of
// the agent.
func newProcesses(t *testing.T) files {
	f := newFiles(t)
	t.Cleanup(func() {
		r, err := process.Open(filepath.Join(f.state, "processes"), process.Options{})
		require.NoError(t, err)
		defer r.Close()
		ctx := within(t, 30*time.Second)
		snap, err := r.List(ctx)
		require.NoError(t, err)
		for _, s := range snap.Sandboxes {
			require.NoError(t, r.StopSandbox(ctx, s.ID))
			require.NoError(t, r.RemoveSandbox(ctx, s.ID))
		}
	})
	return f
}

// announced is a script that says which process it is and which one keeps it, and then sleeps. In the command of a
// container two dollars stand for one.
const announced = `echo "process $$$$ kept by $PPID"; ` + sleeper

var announcement = regexp.MustCompile(`process (\d+) kept by (\d+)\n`)

// last waits until a pod with an announced script has been started a number of times, and returns its last process
// and the one that keeps it.
func (f files) last(pod string, starts int) (pid, keeper int) {
	f.t.Helper()
	exetest.Eventually(f.t, timeout, func() error {
		found := announcement.FindAllStringSubmatch(f.log(pod, "main"), -1)
		if len(found) != starts {
			return fmt.Errorf("%s has been started %d times, want %d", pod, len(found), starts)
		}
		pid, _ = strconv.Atoi(found[starts-1][1])
		keeper, _ = strconv.Atoi(found[starts-1][2])
		return nil
	})
	return pid, keeper
}

// gone returns an error while a process is there.
func gone(pid int) error {
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		return fmt.Errorf("process %d is still there", pid)
	}
	return nil
}

// kill ends a process at once, and waits until it is gone.
func kill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	exetest.Eventually(t, timeout, func() error { return gone(pid) })
}

// An agent whose sources are away runs what it was told last: what still runs is left alone, what was killed meanwhile
// is started again, and so is everything after the machine has lost it all.
func TestSourcesAway(t *testing.T) {
	t.Parallel()
	f := newProcesses(t)
	var hangs atomic.Bool
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if hangs.Load() {
			<-over
		}
		_, _ = w.Write([]byte(podYAML("db", announced)))
	}))
	defer server.Close()
	defer close(over)
	f.manifests.Write("web.yaml", podYAML("web", announced))
	fields := map[string]any{"staticPodURL": server.URL}
	a := f.start(fields)
	web, _ := f.last("web-n1", 1)
	db, keeper := f.last("db-n1", 1)
	exetest.Eventually(t, timeout, func() error { // the file is written at most once in a while
		text, err := os.ReadFile(filepath.Join(f.state, "pods.store"))
		if err == nil && bytes.Count(text, []byte("\n")) != 3 {
			err = fmt.Errorf("the stored pods are\n%s", text)
		}
		return err
	})
	a.Kill()

	// A server that does not answer, no directory, and one of the processes is killed with the one that keeps it.
	hangs.Store(true)
	away := f.manifests.Path + ".away"
	require.NoError(t, os.Rename(f.manifests.Path, away))
	kill(t, keeper)
	exetest.Eventually(t, timeout, func() error { return gone(db) })
	a = f.start(fields)
	db, keeper = f.last("db-n1", 2)
	a.AwaitLine(timeout, "pod=db-n1 phase=Running", `summary="1/1 restarts=1`)
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	require.NotContains(t, a.Output(), server.URL, "nobody waits for the server to fail")
	a.Kill()

	// The same with a directory that cannot be read in part, and a runtime that knows of no pod. What ran was lost, and
	// counts as a restart.
	f.manifests.Write("web.yaml", "spec: [")
	_, webKeeper := f.last("web-n1", 1)
	kill(t, keeper)
	kill(t, webKeeper)
	for _, pid := range []int{web, db} {
		exetest.Eventually(t, timeout, func() error { return gone(pid) })
	}
	require.NoError(t, os.RemoveAll(filepath.Join(f.state, "processes")))
	a = f.start(fields)
	a.AwaitLine(timeout, "level=ERROR", "web.yaml:1")
	a.AwaitLine(timeout, "pod=db-n1 phase=Running", `summary="1/1 restarts=2`)
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=1`)
	a.Kill()

	// When a source is the only one and is back, it decides.
	require.NoError(t, os.RemoveAll(f.manifests.Path))
	require.NoError(t, os.Rename(away, f.manifests.Path))
	f.manifests.Write("web.yaml", podYAML("other", announced))
	a = f.start(map[string]any{"drainOnExit": true})
	a.AwaitLine(timeout, "pod=other-n1 phase=Running")
	other, _ := f.last("other-n1", 1)
	exetest.Eventually(t, timeout, func() error { return f.onlyPod("other-n1") })

	// And what is to be taken down on exit is.
	require.Zero(t, a.Terminate(timeout))
	require.NoError(t, gone(other))
	require.NoError(t, f.onlyPod(""))
}

// onlyPod returns an error unless one pod, or none, has a record of the runtime.
func (f files) onlyPod(name string) error {
	records, err := filepath.Glob(filepath.Join(f.state, "processes", "sandboxes", "*"))
	var all strings.Builder
	for _, path := range records {
		_ = filepath.WalkDir(path, func(path string, _ fs.DirEntry, _ error) error {
			text, _ := os.ReadFile(path)
			all.Write(text)
			return nil
		})
	}
	want := 1
	if name == "" {
		want = 0
	}
	if err == nil && (len(records) != want || !strings.Contains(all.String(), name)) {
		err = fmt.Errorf("the runtime knows %d pods:\n%s", len(records), all.String())
	}
	return err
}

// A damaged store is said and kept aside. Nothing is lost that runs: a pod whose manifest cannot be read goes on, and
// is known again when it can.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	f := newProcesses(t)
	f.manifests.Write("web.yaml", podYAML("web", announced))
	a := f.start(nil)
	web, _ := f.last("web-n1", 1)
	store := filepath.Join(f.state, "pods.store")
	var text []byte
	exetest.Eventually(t, timeout, func() (err error) {
		if text, err = os.ReadFile(store); err == nil && !bytes.Contains(text, []byte("web-n1")) {
			err = fmt.Errorf("the store has no web-n1")
		}
		return err
	})
	a.Kill()
	damaged := bytes.Replace(text, []byte("web-n1"), []byte("wxb-n1"), 1)
	require.NoError(t, os.WriteFile(store, damaged, 0o600))
	f.manifests.Write("web.yaml", "spec: [")
	f.manifests.Write("more.yaml", podYAML("more", announced))

	a = f.start(nil)
	a.AwaitLine(timeout, "level=ERROR", "the pods of the store are lost; running pods are left running", store)
	a.AwaitLine(timeout, "level=ERROR", "web.yaml:1")
	f.last("more-n1", 1) // so the rest of the directory is followed
	aside, err := filepath.Glob(store + ".corrupt-*")
	require.NoError(t, err)
	require.Len(t, aside, 1)
	kept, err := os.ReadFile(aside[0])
	require.NoError(t, err)
	require.Equal(t, string(damaged), string(kept))
	require.NotContains(t, a.Output(), "pod=web-n1 phase")
	require.NoError(t, syscall.Kill(web, 0), "it runs")

	f.manifests.Write("web.yaml", podYAML("web", announced))
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	f.last("web-n1", 1)
	require.Equal(t, 1, strings.Count(a.Output(), "are lost"))
	a.Kill()
}

// What the objects directory has arrives in the environment; a container is ready when its probe says so, stays so for
// the next agent, and is restarted when it is sick.
func TestObjectsAndProbes(t *testing.T) {
	t.Parallel()
	f, marks := newProcesses(t), t.TempDir()
	f.objects.Write("default/services/db.yaml", `apiVersion: v1
kind: Service
metadata: {name: db, namespace: default}
spec: {clusterIP: 192.0.2.7, ports: [{port: 5432}]}
`)
	f.manifests.Write("web.yaml", podYAML("web", `echo "db is at $DB_SERVICE_HOST:$DB_SERVICE_PORT"; `+sleeper, fmt.Sprintf(`      readinessProbe: {exec: {command: [/bin/sh, -c, "test -e %[1]s/ready"]}, periodSeconds: 1, timeoutSeconds: 60}
      livenessProbe: {exec: {command: [/bin/sh, -c, "test ! -e %[1]s/sick || ! rm %[1]s/sick"]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}
`, marks)))
	fields := map[string]any{"drainOnExit": true}
	a := f.start(fields)
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="0/1 restarts=0`)
	f.awaitLog("web-n1", "main", "db is at 192.0.2.7:5432")
	mark := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(marks, name), nil, 0o600)) }
	mark("ready")
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	a.Kill()
	a = f.start(fields)
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	require.NotContains(t, a.Output(), `summary="0/1`, "what was ready did not stop being so")
	mark("sick")
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=1`)

	f.objects.Write("default/configmaps/words.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words, namespace: default}\ndata: {GREETING: hello}\n")
	f.manifests.Write("env.yaml", podYAML("env", "echo $GREETING; "+sleeper, "      envFrom: [{configMapRef: {name: words}}]\n"))
	f.awaitLog("env-n1", "main", "hello")

	// Manifests have no API server behind them, so they may not ask for what only that has.
	f.manifests.Write("account.yaml", strings.Replace(podYAML("account", sleeper), "spec:", "spec:\n  serviceAccountName: shop", 1))
	a.AwaitLine(timeout, "level=ERROR", "account.yaml", "spec.serviceAccountName", "static pods may not reference service accounts")
	require.Zero(t, a.Terminate(timeout))
}

// A log is rotated under its writer: its files are named as documented and never hold more than they may.
func TestLogRotation(t *testing.T) {
	t.Parallel()
	f := newProcesses(t)
	const line = "a line of the container that is a hundred bytes long with the time and the rest that is put before"
	// Some 50 kB/s, for files that are compressed, and some 2 MB/s, for files that there is no time to compress.
	f.manifests.Write("slow.yaml", podYAML("slow", `while :; do for i in 1 2 3 4 5 6 7 8; do echo "`+line+`"; done; sleep 0.02; done`))
	f.manifests.Write("fast.yaml", podYAML("fast", `while :; do for i in 1 2 3 4 5 6 7 8 9; do for j in 1 2 3 4 5 6 7 8 9; do echo "`+line+`"; done; done; sleep 0.005; done`))
	a := f.start(map[string]any{"containerLogMaxSize": "64Ki", "containerLogMaxFiles": 3, "drainOnExit": true})
	slow, fast := f.watchLog("slow-n1"), f.watchLog("fast-n1")
	exetest.Eventually(t, timeout, func() error {
		slow.look()
		fast.look()
		if len(slow.seen) < 8 || len(fast.seen) < 12 || !slow.compressed {
			return fmt.Errorf("files seen: %d of the slow one (compressed: %t), %d of the fast one", len(slow.seen), slow.compressed, len(fast.seen))
		}
		return nil
	})
	t.Logf("the most there was: slow %d, fast %d bytes", slow.most, fast.most)
	budget := logs.Policy{MaxSize: 64 << 10, MaxFiles: 3}.MaxBytes()
	require.LessOrEqual(t, slow.most, budget+256<<10, "what is written in a few seconds, on a busy machine too")
	require.LessOrEqual(t, fast.most, budget+4<<20)
	require.NotContains(t, a.Output(), "level=ERROR")
	require.Zero(t, a.Terminate(timeout))
}
