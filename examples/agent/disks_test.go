// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// diskYAML is a local volume of the node, bound to a claim.
const diskYAML = `apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: %[2]s
  claimRef: {namespace: default, name: %[3]s}
  local: {path: %[4]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[5]s]}]}]}}
`

const diskClaimYAML = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s%[3]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}, volumeName: %[2]s, volumeMode: %[4]s}
`

// disksPod is a pod with four claims: a directory, which gets the fsGroup, a block device, a block device that the agent
// formats, and an ephemeral volume.
const disksPod = `apiVersion: v1
kind: Pod
metadata: {name: disks}
spec:
  terminationGracePeriodSeconds: 2
  securityContext: {fsGroup: 4321}
  volumes:
    - {name: dir, persistentVolumeClaim: {claimName: dir}}
    - {name: raw, persistentVolumeClaim: {claimName: raw}}
    - {name: fs, persistentVolumeClaim: {claimName: fs}}
    - {name: own, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}}
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, %q]
      volumeMounts:
        - {name: dir, mountPath: /dir}
        - {name: fs, mountPath: /fs}
        - {name: fs, mountPath: /sub, subPath: a/b}
        - {name: own, mountPath: /own}
      volumeDevices: [{name: raw, devicePath: /dev/raw}]
`

const disksScript = `echo dir $(cat /dir/file) group $(stat -c %g /dir/file)
echo to the device > /dev/raw; echo raw $(head -c 13 /dev/raw)
echo fs $(echo x >> /fs/count; wc -l < /fs/count) $(stat -c %g /fs); echo y > /sub/file && cat /fs/a/b/file
echo own $(ls /own); trap 'exit 0' TERM; while :; do sleep 0.1; done`

// A pod with every kind of local volume starts and survives the kill of its agent. After its removal nothing is mounted, and
// its data remains.
func TestIntegrationDisks(t *testing.T) {
	n := newNode(t)
	const node, pod = "n1", "disks-n1"
	dir, own := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("of the host"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(own, "mine"), nil, 0o600))
	put := func(name, claim, mode, path, owner string) {
		n.objects.Write("persistentvolumes/"+name+".yaml", fmt.Sprintf(diskYAML, name, mode, claim, path, node))
		n.objects.Write("default/persistentvolumeclaims/"+claim+".yaml", fmt.Sprintf(diskClaimYAML, claim, name, owner, mode))
	}
	raw, fs := loopDisk(t), loopDisk(t)
	put("pv-dir", "dir", "Filesystem", dir, "")
	put("pv-raw", "raw", "Block", raw, "")
	put("pv-fs", "fs", "Filesystem", fs, "")
	put("pv-own", pod+"-own", "Filesystem", own, ", ownerReferences: [{apiVersion: v1, kind: Pod, name: "+pod+", uid: '', controller: true}]")

	n.manifests.Write("disks.yaml", fmt.Sprintf(disksPod, disksScript))
	a := n.start(nil)
	n.awaitLog(pod, "main", "dir of the host group 4321", "raw to the device", "fs 1 4321", "y", "own mine")
	before, _ := n.containers(pod)
	a.Kill()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod="+pod+" phase=Running")
	after, _ := n.containers(pod)
	require.Equal(t, before, after)
	n.manifests.Remove("disks.yaml")
	n.awaitNoLeftovers(timeout)
	exetest.Eventually(t, timeout, func() error {
		left, err := filepath.Glob(filepath.Join(n.state, "pods", "[^.]*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("remaining directories: %s", left)
		}
		return err
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), n.state)
	a.Terminate(timeout)
	require.FileExists(t, filepath.Join(dir, "file"))
	for _, device := range []string{raw, fs} {
		out, err := exec.CommandContext(t.Context(), "losetup", "-j", device).CombinedOutput()
		require.NoError(t, err)
		require.Empty(t, string(out), "the loop device is detached")
	}
}

// loopDisk returns an empty block device.
func loopDisk(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 16<<20))
	out, err := exec.CommandContext(t.Context(), "losetup", "-f", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("this node has no free loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", device).Run() })
	return device
}
