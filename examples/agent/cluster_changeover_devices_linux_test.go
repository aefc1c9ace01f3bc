// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// kubeletDevices is the directory of device plugins of each kubelet, whatever its root directory is.
const kubeletDevices = "/var/lib/kubelet/device-plugins"

const changeOverVolumes = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: loop.csi.example}
spec: {podInfoOnMount: true, attachRequired: false, fsGroupPolicy: File}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: loop}
provisioner: loop.csi.example
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-data}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: loop
  claimRef: {namespace: default, name: data}
  csi: {driver: loop.csi.example, volumeHandle: data, fsType: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: loop, resources: {requests: {storage: 16Mi}}}
`

// gadgetPodYAML returns a pod with a device, and with these lines of its container and its spec.
func gadgetPodYAML(name, container, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "echo has $GADGETS; trap exit TERM; while :; do sleep 0.2; done"]
    resources: {limits: {example.com/gadget: 1}}
%s%s`, name, container, spec)
}

// wrapKubelet returns a script that runs the kubelet in a mount namespace in which kubeletDevices is the directory of the node. The namespace exists until
// the test ends: a kubelet finds the loop devices of its predecessor by the paths of their backing files, which are lost with the namespace.
func (n *sharedNode) wrapKubelet(devices string) string {
	require.NoError(n.t, os.MkdirAll(kubeletDevices, 0o750))
	script := filepath.Join(n.t.TempDir(), "kubelet.sh")
	owner := exetest.StartCommand(n.t, exec.Command("unshare", "--mount", "--propagation", "unchanged", "sh", "-c",
		`mount --make-private "$(stat -c %m "$0")" && mount --bind "$1" "$0" && echo mounted && exec sleep infinity`, kubeletDevices, devices))
	owner.AwaitLine(timeout, "mounted")
	text := fmt.Sprintf("#!/bin/sh\nexec nsenter --target %d --mount --wdns=/ %s \"$@\"\n", owner.PID(), n.kubelet)
	require.NoError(n.t, os.WriteFile(script, []byte(text), 0o700))
	return script
}

// awaitGadget returns the ID of the device in the newest log of a pod.
func (n *sharedNode) awaitGadget(pod string) (id string) {
	n.t.Helper()
	exetest.Eventually(n.t, timeout, func() error {
		logs, err := filepath.Glob(filepath.Join(n.logs, "default_"+pod+"_*", "main", "0.log"))
		if err != nil || len(logs) != 1 {
			return fmt.Errorf("pod %s has the logs %q: %w", pod, logs, err)
		}
		text, err := os.ReadFile(logs[0])
		if err != nil {
			return err
		}
		_, has, _ := strings.Cut(string(text), " has ")
		if id = strings.TrimSpace(has); id != "a" && id != "b" {
			return fmt.Errorf("pod %s has %q", pod, id)
		}
		return nil
	})
	return id
}

// An agent and a kubelet take over pods with devices and volumes of a CSI driver. The containers keep running, and their devices are given to no other pod.
func TestClusterChangeOverOfDevicesAndClaims(t *testing.T) {
	needCluster(t)
	csi := newCSINode(t)
	gadgets := addGadgets(t, csi.node, "a", "b")
	n := shareNode(t, csi.node)
	kubelet := n.wrapKubelet(gadgets.pluginDir())
	address := n.lab.Subnet().Addr().Next().String()
	m := n.node.joinCluster(t, map[string]any{"nodeIPs": []string{address}, "adoptPods": true}, false)
	fields := map[string]any{"authentication": map[string]any{
		"x509": m.config["authentication"].(map[string]any)["x509"], "webhook": map[string]any{"enabled": false}, "anonymous": map[string]any{"enabled": false},
	}}
	m.agent.Terminate(timeout)
	makeDisk(t, csi.data, "data", 16<<20)
	m.apply(changeOverVolumes)
	driver := csi.startDriver()
	// A kubelet removes the sockets of plugins at its start, and plugins then start again.
	start := func(program string) (p, devicePlugin *exetest.Process) {
		_ = os.Remove(filepath.Join(gadgets.pluginDir(), "kubelet.sock"))
		p = n.startProgram(program, fields, "--kubeconfig="+m.config["kubeconfig"].(string), "--node-ip="+address)
		exetest.Eventually(t, timeout, func() error {
			_, err := os.Lstat(filepath.Join(gadgets.pluginDir(), "kubelet.sock"))
			return err
		})
		devicePlugin = gadgets.startPlugin()
		m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.capacity.example\.com/gadget} {.status.allocatable.example\.com/gadget}`)("2 2")
		return p, devicePlugin
	}
	p, devicePlugin := start(kubelet)
	m.apply(gadgetPodYAML("holder", "    volumeMounts: [{name: data, mountPath: /data}]\n", "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n"))
	m.eventually(2*timeout, "get", "pod", "holder", "-o", "jsonpath={.status.phase}")("Running")
	holds := n.awaitGadget("holder")
	data := filepath.Join(n.state, "pods", m.do("get", "pod", "holder", "-o", "jsonpath={.metadata.uid}"), "volumes/kubernetes.io~csi/pv-data/mount/file")
	require.NoError(t, os.WriteFile(data, []byte("kept"), 0o600))
	before, statuses := n.record(), m.readiness()
	for round, program := range []string{n.ours, kubelet, n.ours} {
		p.Kill()
		devicePlugin.Kill()
		p, devicePlugin = start(program)
		m.apply(gadgetPodYAML("other", "", ""))
		m.eventually(2*timeout, "get", "pod", "other", "-o", "jsonpath={.status.phase}")("Running")
		require.NotEqual(t, holds, n.awaitGadget("other"), "round %d: the device of a running container was given to another pod\n%s", round, p.Output())
		m.do("delete", "pod", "other", "--timeout=60s")
		time.Sleep(20 * time.Second)
		after := slices.DeleteFunc(n.record(), func(line string) bool { return strings.HasPrefix(line, "other ") }) // a kubelet removes its sandbox later
		require.Equal(t, before, after, "round %d:\n%s", round, p.Output())
		require.Empty(t, errorsAboutPods(p))
		require.Equal(t, statuses, m.readiness(), "round %d:\n%s", round, p.Output())
		content, err := os.ReadFile(data)
		require.NoError(t, err)
		require.Equal(t, "kept", string(content))
		previous, err := plugin.ReadCheckpoint(filepath.Join(gadgets.pluginDir(), plugin.CheckpointName))
		require.NoError(t, err)
		require.NotEmpty(t, previous.Claims)
	}
	m.do("delete", "pod", "holder", "--timeout=60s")
	n.awaitNoLeftovers(timeout)
	n.requireNoPodFiles()
	csi.awaitNoVolumes()
	for _, process := range []*exetest.Process{p, driver} {
		process.Terminate(timeout)
	}
	devicePlugin.Kill()
}
