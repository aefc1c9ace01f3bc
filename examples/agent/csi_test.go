// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// loopDriver is the CSIDriver object of the driver of loop devices.
const loopDriver = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: loop.csi.example}
spec: {podInfoOnMount: true, attachRequired: false, fsGroupPolicy: File, volumeLifecycleModes: [Ephemeral, Persistent]}
`

// csiNode is a node with a CSI driver, which is a separate process.
type csiNode struct {
	*node
	binary, data string
}

func newCSINode(t *testing.T) *csiNode {
	n := &csiNode{node: newNode(t), data: filepath.Join(t.TempDir(), "data")}
	n.binary = filepath.Join(t.TempDir(), "csidriver")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", n.binary, "../../hack/csidriver").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.MkdirAll(filepath.Join(n.state, "plugins_registry"), 0o750))
	n.objects.Write("csidrivers/loop.csi.example.yaml", loopDriver)
	t.Cleanup(n.unmountAll)
	return n
}

// startDriver starts the driver.
func (n *csiNode) startDriver() *exetest.Process {
	n.t.Helper()
	return n.startDriverAs("loop.csi.example", n.data, filepath.Join(n.state, "plugins_registry"))
}

// startDriverAs starts the driver under a name and registers it in the registry directory of an agent. Its volumes are in
// data, and its socket is next to data.
func (n *csiNode) startDriverAs(name, data, registry string) *exetest.Process {
	n.t.Helper()
	return exetest.StartCommand(n.t, exec.Command(n.binary, "-name", name, "-endpoint", data+".sock", "-data", data,
		"-registry", registry))
}

// makeDisk creates a volume of the driver, or expands one.
func makeDisk(t *testing.T, data, handle string, size int64) {
	t.Helper()
	image := filepath.Join(data, "volumes", handle+".img")
	require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o700))
	f, err := os.OpenFile(image, os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Truncate(image, size))
}

// mounts returns the mount points below the state of the agent, the deepest first.
func (n *csiNode) mounts() (points []string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(n.t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], n.state+"/") {
			points = append([]string{fields[4]}, points...)
		}
	}
	return points
}

// unmountAll unmounts the remaining volumes of a test.
func (n *csiNode) unmountAll() {
	for _, point := range n.mounts() {
		_ = exec.Command("umount", "-l", point).Run()
	}
}

// awaitNoVolumes waits until no mount, no loop device and no directory of a volume remains.
func (n *csiNode) awaitNoVolumes() {
	n.t.Helper()
	exetest.Eventually(n.t, timeout, func() error {
		if left := n.mounts(); len(left) > 0 {
			return fmt.Errorf("mounted: %s", left)
		}
		files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), n.data) {
				return fmt.Errorf("attached: %s %s", file, text)
			}
		}
		if err != nil {
			return err
		}
		for _, glob := range []string{filepath.Join(n.state, "pods", "[^.]*"), filepath.Join(n.data, "inline", "*"), filepath.Join(n.state, "plugins/kubernetes.io/csi/*/*/*")} {
			left, err := filepath.Glob(glob)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("remaining directories: %s", left)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A pod with an inline volume of a CSI driver waits for the driver. It keeps the volume while driver and agent are
// restarted, and the volume is torn down with the pod.
func TestIntegrationCSIInline(t *testing.T) {
	n := newCSINode(t)
	n.manifests.Write("inline.yaml", strings.Replace(podYAML("inline",
		"echo size $(df -k /data | tail -1 | awk '{print ($2 > 4000 && $2 < 16384)}') group $(stat -c %g /data); echo written > /data/file; cat /data/file; "+
			"trap 'exit 0' TERM; while :; do echo again $(cat /data/file) >> /data/log; sleep 0.1; done", "      volumeMounts: [{name: data, mountPath: /data}]\n"),
		"spec:", "spec:\n  securityContext: {fsGroup: 4321}\n  volumes: [{name: data, csi: {driver: loop.csi.example, fsType: ext4, volumeAttributes: {size: \"16777216\"}}}]", 1))
	a := n.start(nil)
	a.AwaitLine(timeout, "FailedMount", "driver name loop.csi.example not found in the list of registered CSI drivers")
	d := n.startDriver()
	n.awaitLog("inline-n1", "main", "size 1 group 4321", "written")
	a.AwaitLine(timeout, "pod=inline-n1 phase=Running")
	before, _ := n.containers("inline-n1")

	d.Kill()
	a.Kill()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod=inline-n1 phase=Running")
	after, _ := n.containers("inline-n1")
	require.Equal(t, before, after)

	n.manifests.Remove("inline.yaml")
	a.AwaitLine(timeout, "tear down", "driver name loop.csi.example not found") // until then the agent keeps the record of the pod
	n.startDriver()
	n.awaitNoLeftovers(timeout)
	n.awaitNoVolumes()
	a.Terminate(timeout)
}

// An agent that is killed while it sets up or tears down inline volumes continues after its restart.
func TestIntegrationCSICrashes(t *testing.T) {
	n := newCSINode(t)
	for _, name := range []string{"one", "two", "three"} {
		n.manifests.Write(name+".yaml", strings.Replace(podYAML(name, "cat /data/seen; echo "+name+" > /data/seen; cat /data/seen; "+sleeper,
			"      volumeMounts: [{name: data, mountPath: /data}]\n"), "spec:", "spec:\n  volumes: [{name: data, csi: {driver: loop.csi.example}}]", 1))
	}
	d := n.startDriver()
	for range 5 {
		a := n.start(nil)
		time.Sleep(rand.N(1200 * time.Millisecond)) // the agent is killed at a random moment
		a.Kill()
		if rand.N(2) == 0 {
			d.Kill()
			d = n.startDriver()
		}
	}
	a := n.start(nil)
	for _, name := range []string{"one", "two", "three"} {
		n.awaitLog(name+"-n1", "main", name)
	}
	for _, name := range []string{"one", "two", "three"} {
		n.manifests.Remove(name + ".yaml")
	}
	for range 4 {
		time.Sleep(rand.N(800 * time.Millisecond))
		a.Kill()
		a = n.start(nil)
	}
	a = n.awaitNoLeftoversOfKilled(a, 2*timeout)
	n.awaitNoVolumes()
	a.Terminate(timeout)
}

// claimYAML is a claim, and claimedVolumeYAML the volume that is bound to it.
const claimYAML = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}, volumeName: pv1}
`

const claimedVolumeYAML = `apiVersion: v1
kind: PersistentVolume
metadata: {name: pv1}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: default, name: data}
  csi: {driver: loop.csi.example, volumeHandle: disk1, fsType: ext4}
`

// claimPodYAML returns a pod that mounts the claim.
func claimPodYAML(name, script string) string {
	return strings.Replace(podYAML(name, script, "      volumeMounts: [{name: data, mountPath: /data}]\n"),
		"spec:", "spec:\n  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]", 1)
}

// Agent and driver are killed while a volume is staged, published and torn down. The next pod finds the data, and nothing
// else remains.
func TestIntegrationCSIPersistent(t *testing.T) {
	n := newCSINode(t)
	makeDisk(t, n.data, "disk1", 16<<20)
	n.objects.Write("default/persistentvolumeclaims/data.yaml", claimYAML)
	n.objects.Write("persistentvolumes/pv1.yaml", claimedVolumeYAML)
	n.manifests.Write("first.yaml", claimPodYAML("first", "echo kept > /data/file; echo written; "+sleeper))
	d := n.startDriver()
	for range 5 {
		a := n.start(nil)
		time.Sleep(rand.N(1200 * time.Millisecond)) // killed at a random moment, for example between stage and publish
		a.Kill()
		d.Kill()
		d = n.startDriver()
	}
	a := n.start(nil)
	n.awaitLog("first-n1", "main", "written")
	before, _ := n.containers("first-n1")
	a.Kill()
	d.Kill()
	n.startDriver()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod=first-n1 phase=Running")
	after, _ := n.containers("first-n1")
	require.Equal(t, before, after)

	n.manifests.Remove("first.yaml")
	time.Sleep(rand.N(3 * time.Second)) // during the teardown
	a.Kill()
	a = n.start(nil)
	n.awaitNoLeftovers(2*timeout, "shim", "runc", "mount") // see TestIntegrationWholePod
	n.awaitNoVolumes()
	n.manifests.Write("second.yaml", claimPodYAML("second", "echo found $(cat /data/file); "+sleeper))
	n.awaitLog("second-n1", "main", "found kept")
	n.manifests.Remove("second.yaml")
	n.awaitNoLeftovers(timeout, "shim", "runc", "mount")
	n.awaitNoVolumes()
	a.Terminate(timeout)
}

// A block device of a CSI driver keeps the data of a pod when agent and driver are killed.
func TestIntegrationCSIBlock(t *testing.T) {
	n := newCSINode(t)
	makeDisk(t, n.data, "disk1", 16<<20)
	block := strings.NewReplacer("spec: {accessModes", "spec: {volumeMode: Block, accessModes", "spec:\n  capacity", "spec:\n  volumeMode: Block\n  capacity")
	n.objects.Write("default/persistentvolumeclaims/data.yaml", block.Replace(claimYAML))
	n.objects.Write("persistentvolumes/pv1.yaml", block.Replace(claimedVolumeYAML))
	pod := func(name, script string) string {
		return strings.NewReplacer("volumeMounts", "volumeDevices", "mountPath: /data", "devicePath: /dev/disk").Replace(claimPodYAML(name, script))
	}
	n.manifests.Write("first.yaml", pod("first", "test -b /dev/disk && echo data | dd of=/dev/disk conv=fsync 2>/dev/null && echo written; "+sleeper))
	d := n.startDriver()
	a := n.start(nil)
	n.awaitLog("first-n1", "main", "written")
	a.Kill()
	d.Kill()
	n.startDriver()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod=first-n1 phase=Running")
	n.manifests.Remove("first.yaml")
	n.awaitNoLeftovers(timeout)
	n.awaitNoVolumes()
	n.manifests.Write("second.yaml", pod("second", "echo found $(head -c 4 /dev/disk); "+sleeper))
	n.awaitLog("second-n1", "main", "found data")
	n.manifests.Remove("second.yaml")
	n.awaitNoLeftovers(timeout)
	n.awaitNoVolumes()
	a.Terminate(timeout)
}

// Pods are deleted while no agent runs, and their records are missing, as after the run of a kubelet. One pod is also missing in the runtime, as after a
// reboot. The agent tears down the volumes, which only the files of the driver's plugin identify.
func TestIntegrationCSIOfDeletedPodsWithoutRecords(t *testing.T) {
	n := newCSINode(t)
	makeDisk(t, n.data, "disk1", 16<<20)
	n.objects.Write("default/persistentvolumeclaims/data.yaml", claimYAML)
	n.objects.Write("persistentvolumes/pv1.yaml", claimedVolumeYAML)
	n.manifests.Write("claim.yaml", claimPodYAML("claim", "echo written; "+sleeper))
	n.manifests.Write("inline.yaml", strings.Replace(podYAML("inline", "echo written; "+sleeper, "      volumeMounts: [{name: data, mountPath: /data}]\n"),
		"spec:", "spec:\n  volumes: [{name: data, csi: {driver: loop.csi.example}}]", 1))
	n.startDriver()
	adopt := map[string]any{"adoptPods": true}
	a := n.start(adopt)
	n.awaitLog("claim-n1", "main", "written")
	n.awaitLog("inline-n1", "main", "written")
	a.Kill()
	require.Len(t, n.mounts(), 3, "one volume is staged, two are published")

	n.manifests.Remove("claim.yaml")
	n.manifests.Remove("inline.yaml")
	n.removeSandboxes("inline-n1")
	for _, pattern := range []string{"pods.store", "probes", "pods/*/volumes.json", "pods/*/record.json"} {
		paths, err := filepath.Glob(filepath.Join(n.state, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			require.NoError(t, os.Remove(path))
		}
	}
	n.makePodDirsOld()
	a = n.start(adopt)
	n.awaitNoLeftovers(timeout)
	n.awaitNoVolumes()
	a.Terminate(timeout)
}

// removeSandboxes removes the sandboxes of a pod with their containers.
func (n *node) removeSandboxes(pod string) {
	n.t.Helper()
	ctx := within(n.t, timeout)
	snapshot, err := n.client.List(ctx)
	require.NoError(n.t, err)
	for _, s := range snapshot.Sandboxes {
		if s.Pod.Name == pod {
			require.NoError(n.t, n.client.StopSandbox(ctx, s.ID))
			require.NoError(n.t, n.client.RemoveSandbox(ctx, s.ID))
		}
	}
}

// makePodDirsOld sets the times of the directories of pods to an hour ago. An agent removes those of unknown pods ten minutes after their last change.
func (n *node) makePodDirsOld() {
	n.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(n.state, "pods", "*"))
	require.NoError(n.t, err)
	past := time.Now().Add(-time.Hour)
	for _, dir := range dirs {
		require.NoError(n.t, os.Chtimes(dir, past, past))
	}
}
