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

// newProcesses returns the directories of an agent whose pods are plain processes. The cleanup of the test stops all of
// them.
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

// announceScript prints its process ID and that of the keeper, and then sleeps. In the command of a container, $$ stands for
// one dollar.
const announceScript = `echo "process $$$$ kept by $PPID"; ` + sleeper

var announcement = regexp.MustCompile(`process (\d+) kept by (\d+)\n`)

// awaitStart waits until a pod with announceScript has been started a number of times. It returns the newest process and its
// keeper.
func (f files) awaitStart(pod string, starts int) (pid, keeper int) {
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

// checkExited returns an error if a process has not exited.
func checkExited(pid int) error {
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		return fmt.Errorf("process %d has not exited", pid)
	}
	return nil
}

// killProcess kills a process with SIGKILL, and waits until it has exited.
func killProcess(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	exetest.Eventually(t, timeout, func() error { return checkExited(pid) })
}

// An agent whose sources are unavailable runs its stored pods. Running containers are left alone, killed ones are restarted,
// and so are all pods after the runtime has lost its state.
func TestAgentRunsStoredPodsWhileSourcesFail(t *testing.T) {
	t.Parallel()
	f := newProcesses(t)
	var hangs atomic.Bool
	stopped := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if hangs.Load() {
			<-stopped
		}
		_, _ = w.Write([]byte(podYAML("db", announceScript)))
	}))
	defer server.Close()
	defer close(stopped)
	f.manifests.Write("web.yaml", podYAML("web", announceScript))
	fields := map[string]any{"staticPodURL": server.URL}
	a := f.start(fields)
	web, _ := f.awaitStart("web-n1", 1)
	db, keeper := f.awaitStart("db-n1", 1)
	exetest.Eventually(t, timeout, func() error { // the agent writes the store with a delay
		text, err := os.ReadFile(filepath.Join(f.state, "pods.store"))
		if err == nil && bytes.Count(text, []byte("\n")) != 3 {
			err = fmt.Errorf("the stored pods are\n%s", text)
		}
		return err
	})
	a.Kill()

	// The server of the source hangs, the directory is missing, and the process of db is killed with its keeper.
	hangs.Store(true)
	away := f.manifests.Path + ".away"
	require.NoError(t, os.Rename(f.manifests.Path, away))
	killProcess(t, keeper)
	exetest.Eventually(t, timeout, func() error { return checkExited(db) })
	a = f.start(fields)
	db, keeper = f.awaitStart("db-n1", 2)
	a.AwaitLine(timeout, "pod=db-n1 phase=Running", `summary="1/1 restarts=1`)
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	require.NotContains(t, a.Output(), server.URL, "the agent starts stored pods before the server fails")
	a.Kill()

	// Now one manifest is invalid, and the runtime has lost all pods. Lost containers count as restarts.
	f.manifests.Write("web.yaml", "spec: [")
	_, webKeeper := f.awaitStart("web-n1", 1)
	killProcess(t, keeper)
	killProcess(t, webKeeper)
	for _, pid := range []int{web, db} {
		exetest.Eventually(t, timeout, func() error { return checkExited(pid) })
	}
	require.NoError(t, os.RemoveAll(filepath.Join(f.state, "processes")))
	a = f.start(fields)
	a.AwaitLine(timeout, "level=ERROR", "web.yaml:1")
	a.AwaitLine(timeout, "pod=db-n1 phase=Running", `summary="1/1 restarts=2`)
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=1`)
	a.Kill()

	// An available source that is the only one decides which pods run.
	require.NoError(t, os.RemoveAll(f.manifests.Path))
	require.NoError(t, os.Rename(away, f.manifests.Path))
	f.manifests.Write("web.yaml", podYAML("other", announceScript))
	a = f.start(map[string]any{"drainOnExit": true})
	a.AwaitLine(timeout, "pod=other-n1 phase=Running")
	other, _ := f.awaitStart("other-n1", 1)
	exetest.Eventually(t, timeout, func() error { return f.checkOnlyPod("other-n1") })

	// With drainOnExit all pods are removed on exit.
	require.Zero(t, a.Terminate(timeout))
	require.NoError(t, checkExited(other))
	require.NoError(t, f.checkOnlyPod(""))
}

// checkOnlyPod returns an error unless the runtime has a record of exactly one pod, named name; none if name is empty.
func (f files) checkOnlyPod(name string) error {
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
		err = fmt.Errorf("the runtime has %d pods:\n%s", len(records), all.String())
	}
	return err
}

// A damaged store is reported and kept aside. Running pods are kept: a pod with an unreadable manifest continues, and is
// adopted once its manifest is readable.
func TestDamagedStoreIsKeptAside(t *testing.T) {
	t.Parallel()
	f := newProcesses(t)
	f.manifests.Write("web.yaml", podYAML("web", announceScript))
	a := f.start(nil)
	web, _ := f.awaitStart("web-n1", 1)
	store := filepath.Join(f.state, "pods.store")
	var text []byte
	exetest.Eventually(t, timeout, func() (err error) {
		if text, err = os.ReadFile(store); err == nil && !bytes.Contains(text, []byte("web-n1")) {
			err = fmt.Errorf("pod web-n1 is not stored")
		}
		return err
	})
	a.Kill()
	damaged := bytes.Replace(text, []byte("web-n1"), []byte("wxb-n1"), 1)
	require.NoError(t, os.WriteFile(store, damaged, 0o600))
	f.manifests.Write("web.yaml", "spec: [")
	f.manifests.Write("more.yaml", podYAML("more", announceScript))

	a = f.start(nil)
	a.AwaitLine(timeout, "level=ERROR", "the pods of the store are lost; running pods are left running", store)
	a.AwaitLine(timeout, "level=ERROR", "web.yaml:1")
	f.awaitStart("more-n1", 1) // the remaining manifests are read
	aside, err := filepath.Glob(store + ".corrupt-*")
	require.NoError(t, err)
	require.Len(t, aside, 1)
	kept, err := os.ReadFile(aside[0])
	require.NoError(t, err)
	require.Equal(t, string(damaged), string(kept))
	require.NotContains(t, a.Output(), "pod=web-n1 phase")
	require.NoError(t, syscall.Kill(web, 0), "the container still runs")

	f.manifests.Write("web.yaml", podYAML("web", announceScript))
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	f.awaitStart("web-n1", 1)
	require.Equal(t, 1, strings.Count(a.Output(), "are lost"))
	a.Kill()
}

// Objects of the objects directory are in the environment of containers. A container becomes ready by its probe, stays ready
// across a restart of the agent, and is restarted when its liveness probe fails.
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
	require.NotContains(t, a.Output(), `summary="0/1`, "the container stays ready across the restart of the agent")
	mark("sick")
	a.AwaitLine(timeout, "pod=web-n1 phase=Running", `summary="1/1 restarts=1`)

	f.objects.Write("default/configmaps/words.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words, namespace: default}\ndata: {GREETING: hello}\n")
	f.manifests.Write("env.yaml", podYAML("env", "echo $GREETING; "+sleeper, "      envFrom: [{configMapRef: {name: words}}]\n"))
	f.awaitLog("env-n1", "main", "hello")

	// Static pods may not use features that need an API server.
	f.manifests.Write("account.yaml", strings.Replace(podYAML("account", sleeper), "spec:", "spec:\n  serviceAccountName: shop", 1))
	a.AwaitLine(timeout, "level=ERROR", "account.yaml", "spec.serviceAccountName", "static pods may not reference service accounts")
	require.Zero(t, a.Terminate(timeout))
}

// The log of a running container is rotated. Its files have the documented names and stay within their limits.
func TestLogRotation(t *testing.T) {
	t.Parallel()
	f := newProcesses(t)
	const line = "a line of the container that is a hundred bytes long with the time and the rest that is put before"
	// slow writes 50 kB/s, so that its rotated files are compressed. fast writes 2 MB/s, which leaves no time to compress.
	f.manifests.Write("slow.yaml", podYAML("slow", `while :; do for i in 1 2 3 4 5 6 7 8; do echo "`+line+`"; done; sleep 0.02; done`))
	f.manifests.Write("fast.yaml", podYAML("fast", `while :; do for i in 1 2 3 4 5 6 7 8 9; do for j in 1 2 3 4 5 6 7 8 9; do echo "`+line+`"; done; done; sleep 0.005; done`))
	a := f.start(map[string]any{"containerLogMaxSize": "64Ki", "containerLogMaxFiles": 3, "drainOnExit": true})
	slow, fast := f.watchLog("slow-n1"), f.watchLog("fast-n1")
	exetest.Eventually(t, timeout, func() error {
		slow.update()
		fast.update()
		if len(slow.seen) < 8 || len(fast.seen) < 12 || !slow.compressed {
			return fmt.Errorf("files seen: slow %d (compressed: %t), fast %d", len(slow.seen), slow.compressed, len(fast.seen))
		}
		return nil
	})
	t.Logf("largest size: slow %d, fast %d bytes", slow.most, fast.most)
	budget := logs.Policy{MaxSize: 64 << 10, MaxFiles: 3}.MaxBytes()
	require.LessOrEqual(t, slow.most, budget+256<<10, "the excess is the output of a few seconds, on a busy machine too")
	require.LessOrEqual(t, fast.most, budget+4<<20)
	require.NotContains(t, a.Output(), "level=ERROR")
	require.Zero(t, a.Terminate(timeout))
}
