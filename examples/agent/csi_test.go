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

// loopDriver is what the agent knows of the driver of loop devices.
const loopDriver = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: loop.csi.example}
spec: {podInfoOnMount: true, attachRequired: false, fsGroupPolicy: File, volumeLifecycleModes: [Ephemeral, Persistent]}
`

// csiNode is a node with a CSI driver, which is a process of its own.
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
	t.Cleanup(n.unmount)
	return n
}

// drive starts the driver.
func (n *csiNode) drive() *exetest.Process {
	n.t.Helper()
	return n.driveAs("loop.csi.example", n.data, filepath.Join(n.state, "plugins_registry"))
}

// driveAs starts the driver under a name, with a directory of its own for its volumes, at the registry of an agent. The socket is beside
// the directory.
func (n *csiNode) driveAs(name, data, registry string) *exetest.Process {
	n.t.Helper()
	return exetest.StartCommand(n.t, exec.Command(n.binary, "-name", name, "-endpoint", data+".sock", "-data", data,
		"-registry", registry))
}

// makeDisk makes a volume of the driver, or lets one grow.
func makeDisk(t *testing.T, data, handle string, size int64) {
	t.Helper()
	image := filepath.Join(data, "volumes", handle+".img")
	require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o700))
	f, err := os.OpenFile(image, os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Truncate(image, size))
}

// mounts returns what is mounted below the state of the agent, the deepest first.
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

// unmount unmounts what a test has left behind.
func (n *csiNode) unmount() {
	for _, point := range n.mounts() {
		_ = exec.Command("umount", "-l", point).Run()
	}
}

// leftNothing waits until nothing is left: no mount, no loop device, no file of a volume.
func (n *csiNode) leftNothing() {
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
				err = fmt.Errorf("left behind: %s", left)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A pod has an inline volume of a CSI driver; it waits for the driver, keeps the volume while driver and agent are killed, and leaves
// nothing.
func TestIntegrationCSIInline(t *testing.T) {
	n := newCSINode(t)
	n.manifests.Write("inline.yaml", strings.Replace(podYAML("inline",
		"echo size $(df -k /data | tail -1 | awk '{print ($2 > 4000 && $2 < 16384)}') group $(stat -c %g /data); echo written > /data/file; cat /data/file; "+
			"trap 'exit 0' TERM; while :; do echo again $(cat /data/file) >> /data/log; sleep 0.1; done", "      volumeMounts: [{name: data, mountPath: /data}]\n"),
		"spec:", "spec:\n  securityContext: {fsGroup: 4321}\n  volumes: [{name: data, csi: {driver: loop.csi.example, fsType: ext4, volumeAttributes: {size: \"16777216\"}}}]", 1))
	a := n.start(nil)
	a.AwaitLine(timeout, "FailedMount", "driver name loop.csi.example not found in the list of registered CSI drivers")
	d := n.drive()
	n.awaitLog("inline-n1", "main", "size 1 group 4321", "written")
	before, _ := n.containers("inline-n1")

	d.Kill()
	a.Kill()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod=inline-n1 phase=Running")
	after, _ := n.containers("inline-n1")
	require.Equal(t, before, after)

	n.manifests.Remove("inline.yaml")
	a.AwaitLine(timeout, "tear down", "driver name loop.csi.example not found") // until then nothing of the pod is forgotten
	n.drive()
	n.awaitNothing(timeout)
	n.leftNothing()
	a.Terminate(timeout)
}

// An agent that is killed while it sets up and takes down inline volumes goes on where it was.
func TestIntegrationCSICrashes(t *testing.T) {
	n := newCSINode(t)
	for _, name := range []string{"one", "two", "three"} {
		n.manifests.Write(name+".yaml", strings.Replace(podYAML(name, "cat /data/seen; echo "+name+" > /data/seen; cat /data/seen; "+sleeper,
			"      volumeMounts: [{name: data, mountPath: /data}]\n"), "spec:", "spec:\n  volumes: [{name: data, csi: {driver: loop.csi.example}}]", 1))
	}
	d := n.drive()
	for range 5 {
		a := n.start(nil)
		time.Sleep(rand.N(1200 * time.Millisecond)) // the moment of the crash
		a.Kill()
		if rand.N(2) == 0 {
			d.Kill()
			d = n.drive()
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
	n.awaitNothing(2*timeout, "shim", "runc", "mount") // see TestIntegrationWholePod
	n.leftNothing()
	a.Terminate(timeout)
}

// claim is a claim and the volume that it is bound to.
const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}, volumeName: pv1}
`

const claimed = `apiVersion: v1
kind: PersistentVolume
metadata: {name: pv1}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: default, name: data}
  csi: {driver: loop.csi.example, volumeHandle: disk1, fsType: ext4}
`

// usesClaim returns a pod that has the claim mounted.
func usesClaim(name, script string) string {
	return strings.Replace(podYAML(name, script, "      volumeMounts: [{name: data, mountPath: /data}]\n"),
		"spec:", "spec:\n  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]", 1)
}

// Agent and driver are killed while a volume is staged and published, and while it is taken back; what a pod has written is there for
// the next one, and nothing else is left.
func TestIntegrationCSIPersistent(t *testing.T) {
	n := newCSINode(t)
	makeDisk(t, n.data, "disk1", 16<<20)
	n.objects.Write("default/persistentvolumeclaims/data.yaml", claim)
	n.objects.Write("persistentvolumes/pv1.yaml", claimed)
	n.manifests.Write("first.yaml", usesClaim("first", "echo kept > /data/file; echo written; "+sleeper))
	d := n.drive()
	for range 5 {
		a := n.start(nil)
		time.Sleep(rand.N(1200 * time.Millisecond)) // the moment of the crash, such as between stage and publish
		a.Kill()
		d.Kill()
		d = n.drive()
	}
	a := n.start(nil)
	n.awaitLog("first-n1", "main", "written")
	before, _ := n.containers("first-n1")
	a.Kill()
	d.Kill()
	n.drive()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod=first-n1 phase=Running")
	after, _ := n.containers("first-n1")
	require.Equal(t, before, after)

	n.manifests.Remove("first.yaml")
	time.Sleep(rand.N(3 * time.Second)) // somewhere in its teardown
	a.Kill()
	a = n.start(nil)
	n.awaitNothing(2*timeout, "shim", "runc", "mount") // see TestIntegrationWholePod
	n.leftNothing()
	n.manifests.Write("second.yaml", usesClaim("second", "echo found $(cat /data/file); "+sleeper))
	n.awaitLog("second-n1", "main", "found kept")
	n.manifests.Remove("second.yaml")
	n.awaitNothing(timeout, "shim", "runc", "mount")
	n.leftNothing()
	a.Terminate(timeout)
}

// A pod has a block device of a CSI driver, which has the data that it wrote when agent and driver were killed.
func TestIntegrationCSIBlock(t *testing.T) {
	n := newCSINode(t)
	makeDisk(t, n.data, "disk1", 16<<20)
	block := strings.NewReplacer("spec: {accessModes", "spec: {volumeMode: Block, accessModes", "spec:\n  capacity", "spec:\n  volumeMode: Block\n  capacity")
	n.objects.Write("default/persistentvolumeclaims/data.yaml", block.Replace(claim))
	n.objects.Write("persistentvolumes/pv1.yaml", block.Replace(claimed))
	pod := func(name, script string) string {
		return strings.NewReplacer("volumeMounts", "volumeDevices", "mountPath: /data", "devicePath: /dev/disk").Replace(usesClaim(name, script))
	}
	n.manifests.Write("first.yaml", pod("first", "test -b /dev/disk && echo data | dd of=/dev/disk conv=fsync 2>/dev/null && echo written; "+sleeper))
	d := n.drive()
	a := n.start(nil)
	n.awaitLog("first-n1", "main", "written")
	a.Kill()
	d.Kill()
	n.drive()
	a = n.start(nil)
	a.AwaitLine(timeout, "pod=first-n1 phase=Running")
	n.manifests.Remove("first.yaml")
	n.awaitNothing(timeout)
	n.leftNothing()
	n.manifests.Write("second.yaml", pod("second", "echo found $(head -c 4 /dev/disk); "+sleeper))
	n.awaitLog("second-n1", "main", "found data")
	n.manifests.Remove("second.yaml")
	n.awaitNothing(timeout)
	n.leftNothing()
	a.Terminate(timeout)
}
