// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hungVolumePod is a pod with a hostPath volume on a file system that hangs.
const hungVolumePod = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: v, hostPath: {path: %s%s}}]
  containers:
    - {name: main, image: "nodeagent.test/busybox:1", command: [/bin/sh, -c, "sleep 1000"], volumeMounts: [{name: v, mountPath: /v}]}
`

// mountHungFUSE mounts a FUSE file system without a server, where the agent and the runtime see it.
func mountHungFUSE(t *testing.T, target string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("this kernel has no FUSE: ", err)
	}
	t.Cleanup(func() {
		_ = unix.Close(fd) // blocked calls return an error
		require.NoError(t, unix.Unmount(target, unix.MNT_DETACH))
	})
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	require.NoError(t, unix.Mount("dead", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data))
}

// Pods whose hostPath volume hangs wait with an event, with or without a type of the volume, and without a call of the
// runtime. Other pods start as fast as before, and the waiting pods are removed with their manifests.
func TestIntegrationDeadFileSystem(t *testing.T) {
	n := newNode(t)
	a := n.start(nil)
	began := time.Now()
	n.manifests.Write("before.yaml", podYAML("before", sleeper))
	n.awaitRunning(timeout, "before-n1")
	usual := time.Since(began)

	dead := filepath.Join(t.TempDir(), "dead")
	require.NoError(t, os.Mkdir(dead, 0o755))
	mountHungFUSE(t, dead)
	n.manifests.Write("typed.yaml", fmt.Sprintf(hungVolumePod, "typed", dead, ", type: Directory"))
	n.manifests.Write("untyped.yaml", fmt.Sprintf(hungVolumePod, "untyped", dead, ""))
	time.Sleep(time.Second) // so that their volumes hang first
	began = time.Now()
	for i := range 5 {
		name := fmt.Sprint("beside", i)
		n.manifests.Write(name+".yaml", podYAML(name, sleeper))
	}
	n.awaitRunning(timeout, "beside0-n1", "beside1-n1", "beside2-n1", "beside3-n1", "beside4-n1")
	t.Logf("one pod runs after %v, five beside two waiting pods after %v", usual, time.Since(began))
	require.Less(t, time.Since(began), 5*usual+30*time.Second)
	a.AwaitLine(timeout, "FailedMount", "typed-n1", "the file system does not answer")
	a.AwaitLine(timeout, "FailedMount", "untyped-n1", "the file system does not answer")
	_, uid := n.containers("untyped-n1")
	require.Empty(t, uid, "the runtime has nothing of the pod")

	began = time.Now()
	n.manifests.Remove("typed.yaml")
	n.manifests.Remove("untyped.yaml")
	a.AwaitLine(timeout, "pod is removed", "typed-n1")
	a.AwaitLine(timeout, "pod is removed", "untyped-n1")
	require.Less(t, time.Since(began), time.Minute)
	n.drain(a)
}
